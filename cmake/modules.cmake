# The one dependency table. A module is a folder under src/; it may include its own headers, the public
# headers and those of the modules named after DEPS, nothing else. The table links the libraries and
# tools/lint/check_includes.py reads the same lines, so a wrong #include fails a test.
# Format (kept to one line a module, because the lint parses it): theseus_module(NAME LEVEL n DEPS a b c)

theseus_module(base      LEVEL 0 DEPS)
theseus_module(telemetry LEVEL 1 DEPS base)
theseus_module(drivers   LEVEL 1 DEPS base)
theseus_module(topology  LEVEL 1 DEPS base)
theseus_module(schedule  LEVEL 1 DEPS base)
theseus_module(discovery LEVEL 2 DEPS base drivers topology)
theseus_module(transport LEVEL 2 DEPS base telemetry drivers)
theseus_module(control   LEVEL 2 DEPS base)
theseus_module(synth     LEVEL 2 DEPS base schedule topology)
theseus_module(policy    LEVEL 3 DEPS base schedule topology control synth)
theseus_module(resource  LEVEL 3 DEPS base telemetry drivers schedule transport)
theseus_module(exec      LEVEL 4 DEPS base telemetry drivers schedule transport resource)
theseus_module(runtime   LEVEL 5 DEPS base telemetry drivers topology discovery schedule transport control synth policy resource exec)
theseus_module(sim       LEVEL 5 DEPS base control)

# The control server of the runtime speaks HTTP; builds without the library go without it.
if(NOT THESEUS_CORE_ONLY)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
  target_link_libraries(theseus_runtime PRIVATE PkgConfig::HTTPLIB)
  target_compile_definitions(theseus_runtime PUBLIC THESEUS_HTTP)
endif()
