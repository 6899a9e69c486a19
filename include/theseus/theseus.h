// Everything a program needs: #include <theseus/theseus.h>
#pragma once

#include "theseus/communicator.h"
#include "theseus/options.h"
#include "theseus/result.h"
#include "theseus/types.h"
