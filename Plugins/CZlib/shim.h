#include <zlib.h>

// deflateInit2 and inflateInit2 are macros, which the importer cannot see. 31 = gzip framing.
static inline int czlib_deflate_init(z_stream *stream, int level) {
  return deflateInit2(stream, level, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
}
static inline int czlib_inflate_init(z_stream *stream) { return inflateInit2(stream, 31); }
