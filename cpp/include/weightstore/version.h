#pragma once

// The version of the library. The build reads it from this file.

#define WEIGHTSTORE_VERSION "0.2.0"
