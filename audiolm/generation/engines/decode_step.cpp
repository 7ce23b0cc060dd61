// One decode step of the language model on a CPU, whole: the codes of a step go in, the logits of
// the next come out. Python and torch's operators cost more than the arithmetic of one step; here
// the weights stream through memory once, for all rows of the batch, and that is the cost.
//
// A row's result is the same bits in every batch and with any number of threads: each of its sums
// has an order of its own, written out below, so the compiler must not reorder (no -ffast-math).
//
// Letters: B batch rows, K codebooks, V predicted ids of a codebook, D model width, H heads,
// E head width, F feed-forward width, L length of a text.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

extern "C" {

enum Kind { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

// (outputs, inputs), packed in the order in which it is read: four outputs at a time, and of each
// in turn a block of its inputs. Outputs are filled up with zeros to a multiple of four and inputs
// to whole blocks. A block is a vector register of L = lanes() words of 4 bytes: word i is the
// float32 number i; or the bfloat16 numbers i (lower half) and L + i; or the int8 numbers i, L + i,
// 2 L + i and 3 L + i, from the lowest byte. Shifts take it apart, which all processors have.
struct Matrix {
    const void *weights;
    const float *scales;  // (outputs,), to multiply outputs by, or null
};

// By root mean square, or with a bias LayerNorm.
struct Norm {
    const float *weight;  // (D,)
    const float *bias;    // (D,), or null
};

struct Layer {
    Norm attention_norm, feedforward_norm;
    Matrix qkv, out, gate, value /* or null: GELU in place of SwiGLU */, feedforward_out;
    float *keys, *values;  // (B, H, capacity, E)
    // Attention to a text, or null: norm, matrices, and the text's keys and values (B, H, L, E).
    Norm cross_norm;
    Matrix cross_query, cross_out;
    const float *text_keys, *text_values;
};

struct Model {
    int64_t kind, codebooks, codes /* V */, width, layers, heads, feedforward, capacity, text_len;
    float epsilon;
    const float *embedding;  // (K * (V + 1), D)
    const Layer *layer;
    Norm last_norm;
    Matrix head;             // (K * V, D)
};

}  // extern "C"

namespace {

// Vectors of as many numbers as a register holds, and how many of them hold sums while others are
// multiplied.
#if defined(__AVX512F__)
constexpr int64_t LANES = 16, ACCUMULATORS = 16;
#elif defined(__AVX__)
constexpr int64_t LANES = 8, ACCUMULATORS = 8;
#elif defined(__aarch64__)
constexpr int64_t LANES = 4, ACCUMULATORS = 16;
#else
constexpr int64_t LANES = 4, ACCUMULATORS = 8;
#endif
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float LooseFloats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Floats load(const float *p) { return *reinterpret_cast<const LooseFloats *>(p); }

inline void store(float *p, Floats x) { *reinterpret_cast<LooseFloats *>(p) = x; }

template <int64_t COUNT>
inline float sum_of(const float *x) {  // in halves, which stay in registers
    typedef float Half __attribute__((vector_size(2 * COUNT), aligned(4), may_alias));
    Half half = *reinterpret_cast<const Half *>(x);
    half += *reinterpret_cast<const Half *>(x + COUNT / 2);
    return sum_of<COUNT / 2>(reinterpret_cast<const float *>(&half));
}
template <>
inline float sum_of<2>(const float *x) {
    return x[0] + x[1];
}
inline float sum(Floats x) { return sum_of<LANES>(reinterpret_cast<const float *>(&x)); }

// x * y + z, rounded once. Said, and not left to the compiler, which would take it here and not
// there, as the code around it suggests: then a row would depend on its batch.
inline Floats multiply_add(Floats x, Floats y, Floats z) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(x, y, z);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(x, y, z);
#elif defined(__aarch64__)
    return vfmaq_f32(z, x, y);
#else
    return x * y + z;
#endif
}

// e^x to 1e-7 of its value: 2^n times the series of e^r, |r| <= ln 2 / 2. NaN stays NaN.
inline Floats exponential(Floats x) {
    const Floats low = Floats{} - 87.0f, high = Floats{} + 88.0f;
    x = x < low ? low : x;
    x = x > high ? high : x;
    const Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    const Floats shifted = x * 1.44269504f + magic;
    const Floats n = shifted - magic;
    const Floats r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    Floats p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const Floats result = (Floats)((Ints)p + (((Ints)shifted - (Ints)magic) << 23));
    return x == x ? result : x;
}

inline void exponentials(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t here = count - i < LANES ? count - i : LANES;
        Floats lanes = {};
        std::memcpy(&lanes, x + i, here * sizeof(float));
        lanes = exponential(lanes);
        std::memcpy(x + i, &lanes, here * sizeof(float));
    }
}

inline float dot(const float *a, const float *b, int64_t count) {
    Floats total = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) total = multiply_add(load(a + i), load(b + i), total);
    float result = sum(total);
    for (; i < count; i++) result += a[i] * b[i];
    return result;
}

// How a block of each kind comes apart into GROUPS vectors of float32.
struct Float32 {
    static constexpr int GROUPS = 1;
    static Floats group(Ints words, int) { return (Floats)words; }
};

struct Bfloat16 {  // the upper half of a float32
    static constexpr int GROUPS = 2;
    static Floats group(Ints words, int g) {
        return (Floats)(g == 0 ? words << 16 : words & ~0xffff);
    }
};

struct Int8 {
    static constexpr int GROUPS = 4;
    static Floats group(Ints words, int g) {
        if (g < 3) words <<= 24 - 8 * g;
        return __builtin_convertvector(words >> 24, Floats);
    }
};

constexpr int TOGETHER = 4;  // outputs whose weights lie together

// R <= TOGETHER outputs of ROWS batch rows, `valid` of them wanted. Each of the R * ROWS sums has
// one accumulator, whatever R and ROWS, so that all add in the same order.
template <typename Kind, int R, int ROWS, bool ADD>
inline void outputs(const int32_t *w, const float *scales, int64_t blocks, const float *x,
                    int64_t x_stride, float *y, int64_t y_stride, int64_t valid) {
    Floats total[R][ROWS] = {};
    for (int64_t i = 0; i < blocks; i++, w += TOGETHER * LANES) {
        Ints words[R];
        for (int r = 0; r < R; r++) {
            // Few rows are read as fast as memory is; many keep it waiting unless asked ahead.
            if (ROWS >= 4) __builtin_prefetch(w + 1024 + r * LANES);
            words[r] = *reinterpret_cast<const LooseInts *>(w + r * LANES);
        }
#pragma GCC unroll 4
        for (int g = 0; g < Kind::GROUPS; g++) {
            Floats weights[R];
            for (int r = 0; r < R; r++) weights[r] = Kind::group(words[r], g);
            for (int b = 0; b < ROWS; b++) {
                const Floats input = load(x + b * x_stride + (i * Kind::GROUPS + g) * LANES);
                for (int r = 0; r < R; r++)
                    total[r][b] = multiply_add(weights[r], input, total[r][b]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < ROWS; b++) {
            if (r >= valid) continue;
            float *const place = y + b * y_stride + r;
            const float result = sum(total[r][b]), scale = scales ? scales[r] : 1.0f;
            *place = __builtin_fmaf(result, scale, ADD ? *place : 0.0f);
        }
}

// The same for all outputs that lie together, as many at a time as the registers have room for.
template <typename Kind, int ROWS, bool ADD>
inline void group_of_outputs(const int32_t *w, const float *scales, int64_t blocks, const float *x,
                             int64_t x_stride, float *y, int64_t y_stride, int64_t valid) {
    constexpr int R = TOGETHER * ROWS <= ACCUMULATORS ? TOGETHER : int(ACCUMULATORS) / ROWS;
    for (int r = 0; r < TOGETHER; r += R)
        outputs<Kind, R, ROWS, ADD>(w + r * LANES, scales ? scales + r : nullptr, blocks, x,
                                    x_stride, y + r, y_stride, valid - r);
}

// Outputs first ... last - 1 of `count`: what one thread computes.
struct Share {
    int64_t first, last;
    Share(int64_t count, int64_t thread, int64_t threads) {
        const int64_t groups = (count + TOGETHER - 1) / TOGETHER;
        first = groups * thread / threads * TOGETHER;
        last = groups * (thread + 1) / threads * TOGETHER;
        if (last > count) last = count;
    }
};

// y (+)= x W^T for x (rows, inputs) and y (rows, outputs).
template <typename Kind, bool ADD>
void product(const Matrix &matrix, int64_t inputs, const float *x, int64_t x_stride, float *y,
             int64_t y_stride, int64_t rows, Share share) {
    constexpr int64_t per_block = LANES * Kind::GROUPS;
    const int64_t blocks = (inputs + per_block - 1) / per_block;
    const int32_t *w = static_cast<const int32_t *>(matrix.weights) + share.first * blocks * LANES;
    for (int64_t o = share.first; o < share.last; o += TOGETHER, w += TOGETHER * blocks * LANES) {
        const float *const scales = matrix.scales ? matrix.scales + o : nullptr;
        const float *from = x;
        float *to = y + o;
        int64_t left = rows;
        const auto take = [&](auto count) {
            constexpr int ROWS = decltype(count)::value;
            group_of_outputs<Kind, ROWS, ADD>(w, scales, blocks, from, x_stride, to, y_stride,
                                              share.last - o);
            left -= ROWS, from += ROWS * x_stride, to += ROWS * y_stride;
        };
        while (left >= 8) take(std::integral_constant<int, 8>());
        while (left >= 4) take(std::integral_constant<int, 4>());
        if (left >= 2) take(std::integral_constant<int, 2>());
        if (left) take(std::integral_constant<int, 1>());
    }
}

void normalise(const float *x, Norm norm, float epsilon, int64_t width, int64_t stride,
               int64_t rows, float *y) {
    for (int64_t b = 0; b < rows; b++, x += stride, y += stride) {
        if (!norm.bias) {
            const float scale = 1.0f / std::sqrt(dot(x, x, width) / float(width) + epsilon);
            for (int64_t i = 0; i < width; i++) y[i] = x[i] * scale * norm.weight[i];
            continue;
        }
        // The mean first: sum(x^2) - sum(x)^2 would lose what a far mean leaves of the variance.
        double total = 0;
        for (int64_t i = 0; i < width; i++) total += x[i];
        const float mean = float(total / double(width));
        for (int64_t i = 0; i < width; i++) y[i] = x[i] - mean;
        const float scale = 1.0f / std::sqrt(dot(y, y, width) / float(width) + epsilon);
        for (int64_t i = 0; i < width; i++) y[i] = y[i] * scale * norm.weight[i] + norm.bias[i];
    }
}

void rotate(const float *x, const float *cosines, const float *sines, int64_t size, float *y) {
    const int64_t half = size / 2;
    for (int64_t i = 0; i < half; i++) {
        y[i] = x[i] * cosines[i] - x[i + half] * sines[i];
        y[i + half] = x[i + half] * cosines[i + half] + x[i] * sines[i + half];
    }
}

// One head of one row: its query looks at `used` steps. `scores` has room for them.
void look(const float *query, const float *keys, const float *values, int64_t size, int64_t used,
          float *scores, float *out) {
    const float scale = 1.0f / std::sqrt(float(size));
    float largest = -FLT_MAX;
    for (int64_t l = 0; l < used; l++) {
        scores[l] = dot(query, keys + l * size, size) * scale;
        largest = scores[l] > largest ? scores[l] : largest;
    }
    for (int64_t l = 0; l < used; l++) scores[l] -= largest;
    exponentials(scores, used);
    Floats totals = {};
    int64_t whole = 0;
    for (; whole + LANES <= used; whole += LANES) totals += load(scores + whole);
    float total = sum(totals);
    for (; whole < used; whole++) total += scores[whole];

    constexpr int BLOCK = 4;
    int64_t e = 0;
    for (; e + BLOCK * LANES <= size; e += BLOCK * LANES) {
        Floats sums[BLOCK] = {};
        for (int64_t l = 0; l < used; l++)
            for (int i = 0; i < BLOCK; i++)
                sums[i] = multiply_add(load(values + l * size + e + i * LANES),
                                       Floats{} + scores[l], sums[i]);
        for (int i = 0; i < BLOCK; i++) store(out + e + i * LANES, sums[i] / total);
    }
    for (; e + LANES <= size; e += LANES) {
        Floats sums = {};
        for (int64_t l = 0; l < used; l++)
            sums = multiply_add(load(values + l * size + e), Floats{} + scores[l], sums);
        store(out + e, sums / total);
    }
    for (; e < size; e++) {
        float result = 0;
        for (int64_t l = 0; l < used; l++) result += values[l * size + e] * scores[l];
        out[e] = result / total;
    }
}

// The same in self-attention: first the step's own key and value go into the cache at `slot`.
void attend(const float *qkv, const float *cosines, const float *sines, int64_t size, float *keys,
            float *values, int64_t slot, int64_t used, float *query, float *scores, float *out) {
    const float *const k = qkv + size, *const v = qkv + 2 * size;
    if (cosines) {
        rotate(qkv, cosines, sines, size, query);
        rotate(k, cosines, sines, size, keys + slot * size);
    } else {
        std::memcpy(query, qkv, size * sizeof(float));
        std::memcpy(keys + slot * size, k, size * sizeof(float));
    }
    std::memcpy(values + slot * size, v, size * sizeof(float));
    look(query, keys, values, size, used, scores, out);
}

// silu(gate) * value
void gate(const float *gates, const float *values, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t here = count - i < LANES ? count - i : LANES;
        Floats g = {}, v = {};
        std::memcpy(&g, gates + i, here * sizeof(float));
        std::memcpy(&v, values + i, here * sizeof(float));
        v = g / (1.0f + exponential(-g)) * v;
        std::memcpy(out + i, &v, here * sizeof(float));
    }
}

// GELU, with the error function itself
void gelu(const float *x, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.707106781f));
}

struct Step {
    int64_t rows;
    const int64_t *codes;            // (B, K)
    const float *position;           // (D,) to add to all rows, or null
    const float *added;              // (B, D) to add, or null
    const int64_t *text_used;        // (B,) characters of each row's text
    const float *cosines, *sines;    // (E,) to turn by, or null
    int64_t slot, used;              // where the step goes in the cache; steps in it then
    float *scratch;                  // scratch_size() numbers, zeros before the first step
    float *logits;                   // (B, K, V)
};

int64_t filled_up(int64_t width) { return (width + 63) / 64 * 64; }

struct Sizes {
    int64_t shared, own;  // numbers for all threads together, and for each
    Sizes(const Model &m, int64_t rows)
        : shared(rows * (2 * filled_up(m.width) + 3 * filled_up(m.feedforward) +
                         filled_up(3 * m.width))),
          own(rows * filled_up(m.width) + filled_up(m.width / m.heads) +
              filled_up(m.capacity > m.text_len ? m.capacity : m.text_len)) {}
};

template <typename Kind>
void work(const Model &m, const Step &s, int64_t thread, int64_t threads) {
    const int64_t D = m.width, F = m.feedforward, H = m.heads, E = D / H, B = s.rows;
    // Inputs of matrices are filled up with zeros, as the matrices are; nothing writes there.
    const int64_t DD = filled_up(D), FF = filled_up(F);
    const Sizes sizes(m, B);
    float *const x = s.scratch;               // (B, DD) the residual stream
    float *const mixed = x + B * DD;          // (B, DD)
    float *const gated = mixed + B * DD;      // (B, FF)
    float *const gates = gated + B * FF;      // (B, F)
    float *const values = gates + B * FF;     // (B, F)
    float *const qkv = values + B * FF;       // (B, 3 D)
    float *const normal = s.scratch + sizes.shared + thread * sizes.own;  // (B, DD), each its own
    float *const query = normal + B * DD;
    float *const scores = query + filled_up(E);
    const Share of_width(D, thread, threads), of_inner(F, thread, threads);
    const Share of_qkv(3 * D, thread, threads), of_logits(m.codebooks * m.codes, thread, threads);

    for (int64_t b = 0; b < B; b++)
        for (int64_t i = of_width.first; i < of_width.last; i++) {
            float total = 0;
            for (int64_t k = 0; k < m.codebooks; k++)
                total += m.embedding[(k * (m.codes + 1) + s.codes[b * m.codebooks + k]) * D + i];
            if (s.position) total += s.position[i];
            x[b * DD + i] = s.added ? total + s.added[b * D + i] : total;
        }
#pragma omp barrier
    for (int64_t l = 0; l < m.layers; l++) {
        const Layer &layer = m.layer[l];
        normalise(x, layer.attention_norm, m.epsilon, D, DD, B, normal);
        product<Kind, false>(layer.qkv, D, normal, DD, qkv, 3 * D, B, of_qkv);
#pragma omp barrier
        for (int64_t i = B * H * thread / threads; i < B * H * (thread + 1) / threads; i++) {
            const int64_t b = i / H, h = i % H;
            attend(qkv + b * 3 * D + h * 3 * E, s.cosines, s.sines, E,
                   layer.keys + i * m.capacity * E, layer.values + i * m.capacity * E, s.slot,
                   s.used, query, scores, mixed + b * DD + h * E);
        }
#pragma omp barrier
        product<Kind, true>(layer.out, D, mixed, DD, x, DD, B, of_width);
#pragma omp barrier
        if (layer.cross_norm.weight) {
            normalise(x, layer.cross_norm, m.epsilon, D, DD, B, normal);
            product<Kind, false>(layer.cross_query, D, normal, DD, qkv, 3 * D, B, of_width);
#pragma omp barrier
            for (int64_t i = B * H * thread / threads; i < B * H * (thread + 1) / threads; i++) {
                const int64_t b = i / H, h = i % H;
                look(qkv + b * 3 * D + h * E, layer.text_keys + i * m.text_len * E,
                     layer.text_values + i * m.text_len * E, E, s.text_used[b], scores,
                     mixed + b * DD + h * E);
            }
#pragma omp barrier
            product<Kind, true>(layer.cross_out, D, mixed, DD, x, DD, B, of_width);
#pragma omp barrier
        }
        normalise(x, layer.feedforward_norm, m.epsilon, D, DD, B, normal);
        product<Kind, false>(layer.gate, D, normal, DD, gates, F, B, of_inner);
        const bool is_gated = layer.value.weights;
        if (is_gated) product<Kind, false>(layer.value, D, normal, DD, values, F, B, of_inner);
        for (int64_t b = 0; b < B; b++) {
            const int64_t at = b * F + of_inner.first, count = of_inner.last - of_inner.first;
            float *const to = gated + b * FF + of_inner.first;
            is_gated ? gate(gates + at, values + at, count, to) : gelu(gates + at, count, to);
        }
#pragma omp barrier
        product<Kind, true>(layer.feedforward_out, F, gated, FF, x, DD, B, of_width);
#pragma omp barrier
    }
    normalise(x, m.last_norm, m.epsilon, D, DD, B, normal);
    product<Kind, false>(m.head, D, normal, DD, s.logits, m.codebooks * m.codes, B, of_logits);
}

}  // namespace

extern "C" {

int64_t lanes() { return LANES; }

int64_t scratch_size(const Model *m, int64_t rows, int64_t threads) {
    const Sizes sizes(*m, rows);
    return sizes.shared + threads * sizes.own;
}

void decode_step(const Model *m, int64_t rows, const int64_t *codes, const float *position,
                const float *added, const int64_t *text_used, const float *cosines,
                const float *sines, int64_t slot, int64_t used, float *scratch, float *logits,
                [[maybe_unused]] int64_t threads) {
    const Step step = {rows,    codes, position, added, text_used, cosines,
                       sines,   slot,  used,     scratch, logits};
#ifdef _OPENMP
#pragma omp parallel num_threads(int(threads))
    {
        const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
#else
    {
        const int64_t thread = 0, team = 1;
#endif
        if (m->kind == INT8)
            work<Int8>(*m, step, thread, team);
        else if (m->kind == BFLOAT16)
            work<Bfloat16>(*m, step, thread, team);
        else
            work<Float32>(*m, step, thread, team);
    }
}

}  // extern "C"
