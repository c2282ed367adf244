# weightstore_formats goes to targets that have no threads and no files: its objects must not ask for either.
execute_process(COMMAND ${NM} --undefined-only ${ARCHIVE}
  OUTPUT_VARIABLE listing RESULT_VARIABLE result ERROR_VARIABLE messages)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${NM} ${ARCHIVE}: ${messages}")
endif()

# An archive that was not read would pass every other check.
if(NOT listing MATCHES " U [^\n]*memcpy|_Znwm")
  message(FATAL_ERROR "${NM} found none of the symbols that every C++ object needs in ${ARCHIVE}")
endif()

# Names as the linker sees them: C functions plain, threads and file streams of the standard library mangled.
set(files "f?open|open|openat|open64|openat64|creat|p?read|p?read64|p?write|p?write64|readv|writev|lseek|lseek64|fread|fwrite")
set(system "mmap|mmap64|munmap|mremap|madvise|ioctl|fsync|rename|unlink|fork|socket|dlopen")
string(REGEX MATCHALL "[^\n]* U (pthread[^\n]*|sem_[^\n]*|(${files}|${system})(@[^\n]*)?|_ZNSt6thread[^\n]*|_ZNSt[^\n]*basic_(i|o)?(f|file)stream[^\n]*|_ZNSt10filesystem[^\n]*)(\n|$)"
  forbidden "${listing}")
if(forbidden)
  list(JOIN forbidden "" forbidden)
  message(FATAL_ERROR "weightstore_formats must reference neither threads nor files, but needs:\n${forbidden}")
endif()
