// The one registration of the namespace `store`: a process can hold only one, and a second aborts it.

#include <torch/custom_class.h>

#include "checkpoint_reader.h"
#include "hash_table.h"
#include "last_error.h"
#include "loader.h"
#include "saver.h"

namespace {

using weightstore::torch_bridge::BlockHolder;
using weightstore::torch_bridge::CheckpointReader;
using weightstore::torch_bridge::guarded;
using weightstore::torch_bridge::HashTable;
using weightstore::torch_bridge::HashTableSnapshot;
using weightstore::torch_bridge::LoaderHolder;
using weightstore::torch_bridge::SaverHolder;
using weightstore::torch_bridge::TableDict;
using weightstore::torch_bridge::TensorDict;

// A method for torch, whose errors last_error() tells.
template <class Result, class Class, class... Arguments>
auto remembering(Result (Class::*method)(Arguments...)) {
  return [method](const c10::intrusive_ptr<Class>& self, std::decay_t<Arguments>... arguments) -> Result {
    return guarded([&]() -> Result { return ((*self).*method)(std::move(arguments)...); });
  };
}
template <class Result, class Class, class... Arguments>
auto remembering(Result (Class::*method)(Arguments...) const) {
  return [method](const c10::intrusive_ptr<Class>& self, std::decay_t<Arguments>... arguments) -> Result {
    return guarded([&]() -> Result { return ((*self).*method)(std::move(arguments)...); });
  };
}

c10::intrusive_ptr<HashTable> new_hash_table(std::string name, std::vector<std::int64_t> shape, std::int64_t dtype,
                                             std::int64_t slice_begin, std::int64_t slice_end, std::int64_t slice_size,
                                             std::int64_t page_rows, std::vector<std::string> children) {
  return guarded([&] {
    return c10::make_intrusive<HashTable>(std::move(name), std::move(shape), dtype, slice_begin, slice_end, slice_size,
                                          page_rows, std::move(children));
  });
}

void register_hash_table(torch::Library& m) {
  m.class_<HashTableSnapshot>("HashTableSnapshot")
      .def("size", remembering(&HashTableSnapshot::size))
      .def("epoch", remembering(&HashTableSnapshot::epoch))
      .def("ids", remembering(&HashTableSnapshot::ids), "", {torch::arg("child") = 0})
      .def("slot", remembering(&HashTableSnapshot::slot), "", {torch::arg("name"), torch::arg("child") = 0});

  m.class_<HashTable>("HashTable")
      .def(torch::init(&new_hash_table), "",
           {torch::arg("name"), torch::arg("shape"), torch::arg("dtype"), torch::arg("slice_begin") = 0,
            torch::arg("slice_end") = 65536, torch::arg("slice_size") = 65536, torch::arg("page_rows") = 4096,
            torch::arg("children") = std::vector<std::string>()})
      .def("add_slot", remembering(&HashTable::add_slot), "",
           {torch::arg("name"), torch::arg("shape"), torch::arg("dtype"), torch::arg("fill") = 0.0})
      .def("set_initializer", remembering(&HashTable::set_initializer), "",
           {torch::arg("kind"), torch::arg("a") = 0.0, torch::arg("b") = 0.0, torch::arg("seed") = 0})
      .def("lookup", remembering(&HashTable::lookup), "", {torch::arg("ids"), torch::arg("insert")})
      .def("lookup_out", remembering(&HashTable::lookup_out), "",
           {torch::arg("ids"), torch::arg("insert"), torch::arg("out")})
      .def("insert", remembering(&HashTable::insert), "", {torch::arg("ids"), torch::arg("embeddings")})
      .def("erase", remembering(&HashTable::erase), "", {torch::arg("ids")})
      .def("contains", remembering(&HashTable::contains), "", {torch::arg("ids")})
      .def("read_slot", remembering(&HashTable::read_slot), "", {torch::arg("name"), torch::arg("ids")})
      .def("write_slot", remembering(&HashTable::write_slot), "",
           {torch::arg("name"), torch::arg("ids"), torch::arg("values")})
      .def("read_slot_rows", remembering(&HashTable::read_slot_rows), "", {torch::arg("name"), torch::arg("rows")})
      .def("write_slot_rows", remembering(&HashTable::write_slot_rows), "",
           {torch::arg("name"), torch::arg("rows"), torch::arg("values")})
      .def("coalesced_ids", remembering(&HashTable::coalesced_ids), "", {torch::arg("child"), torch::arg("ids")})
      .def("ids", remembering(&HashTable::ids))
      .def("size", remembering(&HashTable::size))
      .def("clear", remembering(&HashTable::clear))
      .def("reserve", remembering(&HashTable::reserve), "", {torch::arg("rows")})
      .def("touch", remembering(&HashTable::touch), "", {torch::arg("ids"), torch::arg("step")})
      .def("evict_older", remembering(&HashTable::evict_older), "", {torch::arg("step")})
      .def("evict_rarer", remembering(&HashTable::evict_rarer), "", {torch::arg("count")})
      .def("epoch", remembering(&HashTable::epoch))
      .def("changed_since", remembering(&HashTable::changed_since), "", {torch::arg("epoch")})
      .def("snapshot", remembering(&HashTable::snapshot))
      .def("name", remembering(&HashTable::name))
      .def("children", remembering(&HashTable::children))
      .def("slot_names", remembering(&HashTable::slot_names))
      .def("slice", remembering(&HashTable::slice))
      .def_readonly("hashtable_tag", &HashTable::hashtable_tag);
}

void register_checkpoints(torch::Library& m) {
  m.class_<BlockHolder>("WriteBlock")
      .def("tensor_name", &BlockHolder::tensor_name)
      .def("slice_info", &BlockHolder::slice_info)
      .def("nbytes", &BlockHolder::nbytes)
      .def("dtype", &BlockHolder::dtype)
      .def("shape", &BlockHolder::shape)
      .def("kind", &BlockHolder::kind);

  m.class_<SaverHolder>("Saver")
      .def(torch::init<std::int64_t, std::int64_t, std::int64_t, const std::string&>(), "",
           {torch::arg("shard_index"), torch::arg("shard_num"), torch::arg("parallel"), torch::arg("path")})
      .def("configure", &SaverHolder::configure, "", {torch::arg("options")})
      .def("make_write_blocks", &SaverHolder::make_write_blocks, "", {torch::arg("hashtables"), torch::arg("tensors")})
      .def("make_part_blocks", &SaverHolder::make_part_blocks, "",
           {torch::arg("parts"), torch::arg("wholes"), torch::arg("begins")})
      .def("check_tensors", &SaverHolder::check_tensors, "", {torch::arg("tensors")})
      .def("begin", &SaverHolder::begin)
      .def("save", &SaverHolder::save, "", {torch::arg("blocks")})
      .def("give_up", &SaverHolder::give_up, "", {torch::arg("why")})
      .def("skip", &SaverHolder::skip)
      .def("progress", &SaverHolder::progress)
      .def("cancel", &SaverHolder::cancel);

  m.class_<LoaderHolder>("Loader")
      .def(torch::init<std::string, std::int64_t, TableDict, TensorDict>(), "",
           {torch::arg("path"), torch::arg("parallel"), torch::arg("hashtables"), torch::arg("tensors")})
      .def("configure", &LoaderHolder::configure, "", {torch::arg("options")})
      .def("set_parts", &LoaderHolder::set_parts, "", {torch::arg("wholes"), torch::arg("begins")})
      .def("default_load_info", &LoaderHolder::default_load_info)
      .def("load", &LoaderHolder::load, "", {torch::arg("info")})
      .def("progress", &LoaderHolder::progress)
      .def("cancel", &LoaderHolder::cancel);

  m.class_<CheckpointReader>("CheckpointReader")
      .def(torch::init<const std::string&>(), "", {torch::arg("path")})
      .def("list_tensor_names", &CheckpointReader::list_tensor_names)
      .def("tensor_shape", &CheckpointReader::tensor_shape, "", {torch::arg("name")})
      .def("tensor_dtype", &CheckpointReader::tensor_dtype, "", {torch::arg("name")})
      .def("tensor_slices", &CheckpointReader::tensor_slices, "", {torch::arg("name")})
      .def("read_tensor", &CheckpointReader::read_tensor, "", {torch::arg("name")})
      .def("read_rows", &CheckpointReader::read_rows, "", {torch::arg("name"), torch::arg("begin"), torch::arg("end")})
      .def("verify", &CheckpointReader::verify);
}

TORCH_LIBRARY(store, m) {
  register_hash_table(m);
  register_checkpoints(m);
  m.def("last_error() -> str", &weightstore::torch_bridge::last_error);
}

}  // namespace
