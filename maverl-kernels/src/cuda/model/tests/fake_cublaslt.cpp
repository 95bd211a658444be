// A library with the functions of cuBLASLt that maverl calls. It checks what it is given against what was described, and
// multiplies column-major matrices on the CPU.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#define EXPORT extern "C" __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 68 };
enum { WORKS, NO_ALGORITHM, UNSUPPORTED, FAILS };

static int alive, searches, products, mode;

struct Handle { uint32_t magic; };
struct Description { uint32_t compute, scale, transposed[2]; };
struct Layout { uint32_t type; uint64_t rows, columns; int64_t leading; };
struct Preference { uint64_t workspace; uint32_t reduction, alignment[4]; };
struct Algorithm { uint64_t data[8]; };
struct Heuristic { Algorithm algorithm; size_t workspace; uint32_t status; float waves; int reserved[4]; };

template <typename T> static int make(T** to, T value) { *to = new T(value); alive++; return SUCCESS; }
template <typename T> static int destroy(T* at) { delete at; alive--; return SUCCESS; }

EXPORT void fake_set(int to) { mode = to; }
EXPORT void fake_counts(int* to) { to[0] = alive; to[1] = searches; to[2] = products; }

#ifndef WITHOUT_VERSION
EXPORT size_t cublasLtGetVersion() { return 130201; }
#endif
EXPORT int cublasLtCreate(Handle** to) { return make(to, Handle{0x17}); }
EXPORT int cublasLtDestroy(Handle* at) { return destroy(at); }
EXPORT int cublasLtMatmulDescCreate(Description** to, uint32_t compute, uint32_t scale) {
  return make(to, Description{compute, scale, {0, 0}});
}
EXPORT int cublasLtMatmulDescDestroy(Description* at) { return destroy(at); }
EXPORT int cublasLtMatmulDescSetAttribute(Description* at, uint32_t of, const void* value, size_t size) {
  if ((of != 3 && of != 4) || size != 4) return INVALID_VALUE;
  std::memcpy(&at->transposed[of - 3], value, 4);
  return SUCCESS;
}
EXPORT int cublasLtMatrixLayoutCreate(Layout** to, uint32_t type, uint64_t rows, uint64_t columns, int64_t leading) {
  return make(to, Layout{type, rows, columns, leading});
}
EXPORT int cublasLtMatrixLayoutDestroy(Layout* at) { return destroy(at); }
EXPORT int cublasLtMatmulPreferenceCreate(Preference** to) { return make(to, Preference{0, 7, {256, 256, 256, 256}}); }
EXPORT int cublasLtMatmulPreferenceDestroy(Preference* at) { return destroy(at); }
EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference* at, uint32_t of, const void* value, size_t size) {
  if (of == 1 && size == 8) std::memcpy(&at->workspace, value, 8);
  else if (of == 3 && size == 4) std::memcpy(&at->reduction, value, 4);
  else if (of >= 5 && of <= 8 && size == 4) std::memcpy(&at->alignment[of - 5], value, 4);
  else return INVALID_VALUE;
  return SUCCESS;
}

// Shape of a product, if its parts fit each other.
struct Shape { uint64_t m, n, k; bool fits; };
static Shape shape(const Description* of, const Layout* a, const Layout* b, const Layout* c, const Layout* d) {
  bool ta = of->transposed[0], tb = of->transposed[1];
  Shape s{ta ? a->columns : a->rows, tb ? b->rows : b->columns, ta ? a->rows : a->columns, true};
  s.fits = of->compute == COMPUTE_32F && of->scale == R_32F && a->type == R_16BF && b->type == R_16BF;
  s.fits &= (d->type == R_16BF || d->type == R_32F) && c->type == d->type;
  s.fits &= (tb ? b->columns : b->rows) == s.k && d->rows == s.m && d->columns == s.n;
  s.fits &= c->rows == s.m && c->columns == s.n;
  for (const Layout* l : {a, b, c, d}) s.fits &= l->leading >= (int64_t)l->rows;
  return s;
}

// The first proposal adds parts of a sum in place, the second is the one to take.
EXPORT int cublasLtMatmulAlgoGetHeuristic(Handle* handle, Description* of, Layout* a, Layout* b, Layout* c, Layout* d,
                                          Preference* preference, int most, Heuristic* to, int* count) {
  searches++;
  *count = 0;
  if (handle->magic != 0x17 || !shape(of, a, b, c, d).fits || most < 2) return INVALID_VALUE;
  if (preference->workspace != 32u << 20 || preference->reduction != 2) return INVALID_VALUE;
  for (uint32_t alignment : preference->alignment)
    if (alignment != 16) return INVALID_VALUE;
  if (mode == NO_ALGORITHM) return NOT_SUPPORTED;
  to[0] = Heuristic{{{1}}, 0, SUCCESS, 1.0f, {}};
  to[1] = Heuristic{{{2, 0x5eed}}, 1024, SUCCESS, 1.0f, {}};
  *count = 2;
  return SUCCESS;
}
EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* of, uint32_t attribute, void* to, size_t size,
                                                size_t* written) {
  if (attribute != 3 || size != 4) return INVALID_VALUE;
  uint32_t scheme = of->data[0] == 1 ? 1 : 2;
  std::memcpy(to, &scheme, 4);
  *written = 4;
  return SUCCESS;
}

static float from_bf16(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float x;
  std::memcpy(&x, &word, 4);
  return x;
}
static uint16_t to_bf16(float x) {
  uint32_t word;
  std::memcpy(&word, &x, 4);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
static float element(const void* of, const Layout* l, uint64_t row, uint64_t column) {
  uint64_t at = row + column * l->leading;
  return l->type == R_16BF ? from_bf16(((const uint16_t*)of)[at]) : ((const float*)of)[at];
}

EXPORT int cublasLtMatmul(Handle* handle, Description* of, const float* alpha, const void* a, Layout* al, const void* b,
                          Layout* bl, const float* beta, const void* c, Layout* cl, void* d, Layout* dl,
                          const Algorithm* algorithm, void* workspace, size_t bytes, void* stream) {
  Shape s = shape(of, al, bl, cl, dl);
  if (mode == UNSUPPORTED) return NOT_SUPPORTED;
  if (mode == FAILS) return EXECUTION_FAILED;
  if (handle->magic != 0x17 || !s.fits || stream) return INVALID_VALUE;
  if (algorithm->data[0] != 2 || algorithm->data[1] != 0x5eed || bytes != 32u << 20) return INVALID_VALUE;
  std::memset(workspace, 0xab, 1024);
  bool ta = of->transposed[0], tb = of->transposed[1];
  for (uint64_t j = 0; j < s.n; j++)
    for (uint64_t i = 0; i < s.m; i++) {
      double sum = 0;
      for (uint64_t t = 0; t < s.k; t++)
        sum += (double)(ta ? element(a, al, t, i) : element(a, al, i, t)) *
               (tb ? element(b, bl, j, t) : element(b, bl, t, j));
      float x = (float)(*alpha * sum + (*beta == 0 ? 0.0 : *beta * (double)element(c, cl, i, j)));
      uint64_t at = i + j * dl->leading;
      if (dl->type == R_16BF) ((uint16_t*)d)[at] = to_bf16(x);
      else ((float*)d)[at] = x;
    }
  products++;
  return SUCCESS;
}
