#pragma once

// Everything a program needs to read and write weights.

#include "weightstore/byte_producer.h"
#include "weightstore/byte_source.h"
#include "weightstore/checksum.h"
#include "weightstore/convert.h"
#include "weightstore/dtype.h"
#include "weightstore/error.h"
#include "weightstore/format.h"
#include "weightstore/hash_table.h"
#include "weightstore/pager.h"
#include "weightstore/progress.h"
#include "weightstore/pytorch.h"
#include "weightstore/reader.h"
#include "weightstore/rename.h"
#include "weightstore/table_snapshot.h"
#include "weightstore/tensor.h"
#include "weightstore/transform.h"
#include "weightstore/value.h"
#include "weightstore/version.h"
#include "weightstore/writer.h"
