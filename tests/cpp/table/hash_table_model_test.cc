// Random operations on a table, each also done to a std::map; and snapshots, compared with the map as it was.

#include <map>
#include <random>
#include <set>

#include "check.h"
#include "table_values.h"
#include "weightstore/hash_table.h"

using namespace weightstore;
using namespace table_values;

namespace {

constexpr std::size_t kDim = 3;

struct Row {
  Floats embedding = Floats(kDim);
  std::int64_t moment = 0;
  std::int64_t version = 0;
  std::int64_t freq = 0;
  bool operator==(const Row&) const = default;
};
using Model = std::map<std::int64_t, Row>;

Model model_of(const TableSnapshot& snapshot, std::size_t step) {
  Model model;
  for (const auto& [id, row] : rows_of<float>(snapshot, 0, kDim, 0, step)) model[id].embedding = row;
  for (const auto& [id, row] : rows_of<std::int64_t>(snapshot, 1, 1, 0, step)) model[id].moment = row[0];
  for (const auto& [id, row] : rows_of<std::int64_t>(snapshot, 2, 1, 0, step)) model[id].version = row[0];
  for (const auto& [id, row] : rows_of<std::int64_t>(snapshot, 3, 1, 0, step)) model[id].freq = row[0];
  return model;
}

class ModelCheck {
 public:
  ModelCheck(std::uint64_t seed, TableOptions table_options) : random_(seed), table_(std::move(table_options)) {
    table_.add_slot("moment", {}, DType::kI64);
    table_.add_slot("version", {}, DType::kI64);
    table_.add_slot("freq", {}, DType::kI64);
  }

  void step() {
    switch (random_() % 10) {
      case 0:
      case 1:
        return insert();
      case 2:
        return lookup_some(true);
      case 3:
        return lookup_some(false);
      case 4:
        return erase();
      case 5:
        return write();
      case 6:
        return touch();
      case 7:
        return snapshot();
      case 8:
        return random_() % 8 == 0 ? evict() : load();
      default:
        return random_() % 40 == 0 ? clear() : changes();
    }
  }

  void compare() {
    const auto now = table_.snapshot();
    epoch_ = now->epoch();
    changed_.clear();
    erased_.clear();
    CHECK_EQ(now->size(), model_.size());
    CHECK_EQ(table_.size(), model_.size());
    CHECK(model_of(*now, 1 + random_() % 100) == model_);
    const Ids ids = table_.ids();
    CHECK(std::set<std::int64_t>(ids.begin(), ids.end()).size() == ids.size());
    CHECK_EQ(ids.size(), model_.size());
    if (kept_ != nullptr) CHECK(model_of(*kept_, 64) == kept_model_);
  }

 private:
  Ids some_ids() {
    Ids ids(random_() % 300);
    for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random_() % 700) * 9973 - 3000000;
    return ids;
  }

  void changed(std::int64_t id) {
    changed_.insert(id);
    erased_.erase(id);
  }

  void gone(std::int64_t id) {
    changed_.erase(id);
    erased_.insert(id);
  }

  void insert() {
    const Ids ids = some_ids();
    Floats values(ids.size() * kDim);
    for (float& value : values) value = static_cast<float>(random_() % 1000);
    table_.insert(ids, bytes_of(values));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::size_t k = 0; k < kDim; ++k) model_[ids[i]].embedding[k] = values[i * kDim + k];
      changed(ids[i]);
    }
  }

  void lookup_some(bool insert) {
    const Ids ids = some_ids();
    const Floats found = lookup(table_, ids, kDim, insert);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = model_.find(ids[i]);
      for (std::size_t k = 0; k < kDim; ++k) {
        CHECK_EQ(found[i * kDim + k], row != model_.end() ? row->second.embedding[k] : 0.0f);
      }
      if (insert && row == model_.end()) {
        model_[ids[i]];
        changed(ids[i]);
      }
    }
  }

  void erase() {
    const Ids ids = some_ids();
    std::size_t known = 0;
    for (const std::int64_t id : ids) {
      if (model_.erase(id) == 0) continue;
      gone(id);
      ++known;
    }
    CHECK_EQ(table_.erase(ids), known);
  }

  void write() {
    const Ids ids = some_ids();
    Ids values(ids.size());
    std::size_t known = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      values[i] = static_cast<std::int64_t>(random_());
      const auto row = model_.find(ids[i]);
      if (row == model_.end()) continue;
      row->second.moment = values[i];
      changed(ids[i]);
      ++known;
    }
    CHECK_EQ(table_.write_slot(1, ids, bytes_of(values)), known);
  }

  void touch() {
    const Ids ids = some_ids();
    ++steps_;
    for (const std::int64_t id : ids) {
      const auto row = model_.find(id);
      if (row == model_.end()) continue;
      row->second.version = steps_;
      ++row->second.freq;
      changed(id);
    }
    table_.touch(ids, steps_);
  }

  void evict() {
    const bool older = random_() % 2 == 0;
    const std::int64_t limit = older ? steps_ - 5 : 2;
    std::size_t erased = 0;
    for (auto row = model_.begin(); row != model_.end();) {
      if ((older ? row->second.version : row->second.freq) >= limit) {
        ++row;
        continue;
      }
      gone(row->first);
      row = model_.erase(row);
      ++erased;
    }
    CHECK_EQ(older ? table_.evict_older(limit) : table_.evict_rarer(limit), erased);
  }

  void load() {
    const Ids ids = some_ids();
    Floats embeddings(ids.size() * kDim);
    for (float& value : embeddings) value = static_cast<float>(random_() % 1000);
    const bool both = random_() % 2 == 0;
    std::vector<HashTable::SlotBytes> slots{{0, bytes_of(embeddings)}};
    if (both) slots.push_back({1, bytes_of(ids)});
    CHECK_EQ(table_.load_rows(0, ids, slots), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Row& row = model_[ids[i]];
      for (std::size_t k = 0; k < kDim; ++k) row.embedding[k] = embeddings[i * kDim + k];
      if (both) row.moment = ids[i];
      changed(ids[i]);
    }
  }

  void snapshot() {
    kept_ = table_.snapshot();
    kept_model_ = model_;
    epoch_ = kept_->epoch();
    changed_.clear();
    erased_.clear();
  }

  void changes() {
    if (epoch_ == 0) return;
    const HashTable::Changes found = table_.changed_since(epoch_);
    CHECK(std::set<std::int64_t>(found.changed.begin(), found.changed.end()) == changed_);
    CHECK_EQ(found.changed.size(), changed_.size());
    // An id created and erased since counts as erased, known to the snapshot or not.
    CHECK(std::set<std::int64_t>(found.erased.begin(), found.erased.end()) == erased_);
    CHECK_EQ(found.erased.size(), erased_.size());
  }

  void clear() {
    table_.clear();
    model_.clear();
    compare();
  }

  std::mt19937_64 random_;
  HashTable table_;
  Model model_;
  std::int64_t steps_ = 0;
  std::uint64_t epoch_ = 0;
  std::set<std::int64_t> changed_;  // since epoch_
  std::set<std::int64_t> erased_;
  std::shared_ptr<const TableSnapshot> kept_;
  Model kept_model_;
};

}  // namespace

TEST(a_table_does_what_a_map_does) {
  for (const std::uint32_t stripes : {1u, 4u, 64u}) {
    for (const std::uint32_t page_rows : {1u, 4u, 64u}) {
      TableOptions made = options(kDim, page_rows);
      made.stripes = stripes;
      ModelCheck check(stripes * 100 + page_rows, made);
      for (int i = 0; i < 400; ++i) {
        check.step();
        if (i % 20 == 0) check.compare();
      }
      check.compare();
    }
  }
}

// Batches of this size are cut, and their parts spread over threads.
TEST(large_batches) {
  constexpr std::size_t kIds = (std::size_t{1} << 20) + 40000;
  TableOptions made = options(1, 4096);
  made.threads = 3;
  HashTable table(made);
  Ids ids(kIds);
  Floats values(kIds);
  for (std::size_t i = 0; i < kIds; ++i) {
    ids[i] = static_cast<std::int64_t>((i % (kIds / 2)) * 2654435761u);
    values[i] = static_cast<float>(i % 16777213);
  }
  table.insert(ids, bytes_of(values));
  CHECK_EQ(table.size(), kIds / 2);
  const Floats found = lookup(table, ids, 1);
  for (std::size_t i = 0; i < kIds; ++i) CHECK_EQ(found[i], values[i % (kIds / 2) + kIds / 2]);
  Ids bad = ids;
  HashTable half([&] {
    TableOptions changed = made;
    changed.buckets = {0, 65535, 65536};
    return changed;
  }());
  bad.back() = 65535;
  CHECK_THROWS(std::exception, half.insert(bad, bytes_of(values)));
  CHECK_EQ(half.size(), 0u);
  CHECK_EQ(table.erase(ids), kIds / 2);
  CHECK_EQ(table.size(), 0u);
}

RUN_TESTS()
