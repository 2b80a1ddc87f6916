#include "CMicrohttpdShim.h"
