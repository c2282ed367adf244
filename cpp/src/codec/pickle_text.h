#pragma once

// Pickles of protocols 0 and 1, whose instructions have arguments in decimal digits and in escaped text.

#include "codec/memory_budget.h"
#include "weightstore/byte_source.h"

namespace weightstore {

// Rewrites such a pickle as one of protocol 2, which PickleTree::parse() reads. Every instruction becomes one of
// protocol 2 that does the same. The result has at most three times the bytes.
//
// Throws Error with the offset in `bytes`:
//  - kCorrupt for bytes that end before STOP or go on behind it, and for arguments that are no number or no text;
//  - kUnsupported for instructions that Python 3 does not write for plain data and arrays, and for a DICT or LIST that
//    has items when it is made.
ChargedString to_protocol_2(ConstBytes bytes, MemoryBudget& memory);

}  // namespace weightstore
