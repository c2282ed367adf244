# Warnings and sanitizers, the same for every target of ours.

function(weightstore_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    -fvisibility=hidden)
  if(WEIGHTSTORE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ draws these from optimized code. Whether they are true changes from version to version: they are no errors.
    target_compile_options(${target} PRIVATE -Wno-error=array-bounds -Wno-error=maybe-uninitialized)
    # False in g++ 12 when it optimizes std::string (GCC bug 105651) and std::vector.
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      target_compile_options(${target} PRIVATE -Wno-restrict -Wno-stringop-overflow -Wno-free-nonheap-object)
    endif()
  endif()
  if(WEIGHTSTORE_SANITIZE STREQUAL "address" OR WEIGHTSTORE_FUZZ)
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  elseif(WEIGHTSTORE_SANITIZE STREQUAL "thread")
    set(flags -fsanitize=thread -fno-omit-frame-pointer)
  elseif(WEIGHTSTORE_SANITIZE)
    message(FATAL_ERROR "WEIGHTSTORE_SANITIZE=${WEIGHTSTORE_SANITIZE}: must be address, thread or empty")
  endif()
  target_compile_options(${target} PRIVATE ${flags})
  target_link_options(${target} PUBLIC ${flags})
  if(WEIGHTSTORE_FUZZ)
    # What libFuzzer needs, without its tracing of comparisons: the mutators know the formats, and inputs run 1.5 times
    # as fast. Targets count edges of the control flow (trace-pc) as work (tests/fuzz/costs.h). So that std::string's
    # count as well, its functions are compiled here and not taken from the standard library.
    target_compile_options(${target} PRIVATE
      -fsanitize-coverage=inline-8bit-counters,pc-table,indirect-calls,trace-pc)
    target_compile_definitions(${target} PRIVATE _GLIBCXX_EXTERN_TEMPLATE=0)
  endif()
endfunction()
