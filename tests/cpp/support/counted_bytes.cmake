# For programs that include counted_bytes.h.
function(weightstore_counted_bytes target)
  foreach(name memcpy memmove memset memcmp bcmp memchr __asan_memcpy __asan_memmove __asan_memset)
    target_link_options(${target} PRIVATE LINKER:--wrap=${name})
  endforeach()
endfunction()
