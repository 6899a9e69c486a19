# Warning and sanitizer flags, carried by one interface target.
add_library(theseus_flags INTERFACE)
target_compile_options(theseus_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
target_link_libraries(theseus_flags INTERFACE Threads::Threads)
set(THESEUS_SANITIZE "" CACHE STRING "value of -fsanitize=, empty for none")
if(THESEUS_SANITIZE)
  add_compile_options(-fsanitize=${THESEUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${THESEUS_SANITIZE})
  # g++ 12 sees uninitialized members in libstdc++'s <regex> when sanitizers keep it from inlining.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(theseus_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
