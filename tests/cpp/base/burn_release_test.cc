#include "weightstore/burn_release.h"

#include "check.h"

using namespace weightstore;

TEST(versions) {
  CHECK(burn_release_from_name("0.20") == BurnRelease::k020);
  CHECK(burn_release_from_name("0.21.0") == BurnRelease::k021);
  CHECK(burn_release_from_name("0.22.17") == BurnRelease::k022);
  CHECK(burn_release_from_name("0.23.0-pre.1") == BurnRelease::k023);
  for (const char* other :
       {"", "0", "0.2", "0.19", "0.19.1", "0.24", "0.220", "0.22.", "0.22.x", "0.22 ", "v0.22", "1.0"}) {
    CHECK(!burn_release_from_name(other));
  }
}

TEST(names) {
  for (const BurnRelease release : {BurnRelease::k020, BurnRelease::k021, BurnRelease::k022, BurnRelease::k023}) {
    CHECK(burn_release_from_name(name_of(release)) == release);
  }
}

RUN_TESTS()
