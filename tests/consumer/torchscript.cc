// A program without Python that runs a TorchScript module which saves a checkpoint:
//   torchscript <module> <library of torch.classes.store> <directory>

#include <dlfcn.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  // Before the module: its code names classes that the library registers.
  if (::dlopen(argv[2], RTLD_NOW) == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return 1;
  }
  torch::jit::Module module = torch::jit::load(argv[1]);
  const c10::IValue blocks = module.forward({std::string(argv[3])});
  std::printf("saved %lld blocks\n", static_cast<long long>(blocks.toInt()));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
