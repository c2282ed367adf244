#pragma once

// The one place of the version; the build reads it from here.

#define WEIGHTSTORE_VERSION "0.1.0"
