/* Plain C for `python -m benchmarks.budget step`: steps of BSGD with merging on a full budget, s = lam t w as in jaxsvm.bsgd.
   Row-major arrays: m points (m, d), their squared norms and coefficients; n rows with labels and squared norms. */
#include <math.h>
#include <string.h>

enum { PARTNERS = 59, GOLDEN = 15 };

static float dot(const float *a, const float *b, int d) {
  float sum = 0;
  for (int k = 0; k < d; k++) sum += a[k] * b[k];
  return sum;
}

/* |w - w'|^2 / (sum of the two coefficients)^2 between the four nearest entries of the table over (share, exp(-length)). */
static float lookup(const float *table, int grid, float share, float kappa) {
  float u = 2 * share * (grid - 1), v = kappa * (grid - 1);
  int i = u, j = v;
  if (i > grid - 2) i = grid - 2;
  if (j > grid - 2) j = grid - 2;
  u -= i, v -= j;
  const float *at = table + i * grid + j;
  return (1 - u) * ((1 - v) * at[0] + v * at[1]) + u * ((1 - v) * at[grid] + v * at[grid + 1]);
}

static float peak(float share, float length, float h) {
  return share * expf(-length * (1 - h) * (1 - h)) + (1 - share) * expf(-length * h * h);
}

/* The smallest point merges with the best of its partners; the newcomer takes its place. */
static void merge(float *points, float *sqnorm, float *coef, const float *row, float row_sqnorm, float label, const int *partners,
                  const float *table, int grid, float gamma, int m, int d) {
  int gone = 0, best = partners[0];
  for (int j = 1; j < m; j++)
    if (fabsf(coef[j]) < fabsf(coef[gone])) gone = j;
  float *own = points + (long)gone * d, a = coef[gone], least = INFINITY, length = 0, share = 0;
  for (int k = 0; k < PARTNERS; k++) {
    int j = partners[k];
    float b = coef[j];
    if (j == gone || a * b <= 0) continue;
    float square = sqnorm[gone] + sqnorm[j] - 2 * dot(own, points + (long)j * d, d), far = gamma * (square > 0 ? square : 0);
    float s = a / (a + b), change = (a + b) * (a + b) * lookup(table, grid, s > .5f ? 1 - s : s, expf(-far));
    if (change < least) least = change, best = j, length = far, share = s;
  }
  float low = 0, high = 1, ratio = .618034f;
  for (int k = 0; k < GOLDEN; k++) {
    float left = high - ratio * (high - low), right = low + ratio * (high - low);
    if (peak(share, length, left) >= peak(share, length, right)) high = right;
    else low = left;
  }
  float h = .5f * (low + high), *other = points + (long)best * d;
  coef[best] = (a + coef[best]) * peak(share, length, h);
  for (int k = 0; k < d; k++) other[k] = h * own[k] + (1 - h) * other[k];
  sqnorm[best] = dot(other, other, d);
  memcpy(own, row, sizeof(float) * d);
  sqnorm[gone] = row_sqnorm, coef[gone] = label;
}

/* `steps` steps on the rows that `order` names, after `before` steps; returns how many rows violated their margin. */
int bsgd(float *points, float *sqnorm, float *coef, const float *x, const float *y, const float *x_sqnorm, const int *order,
         const int *partners, const float *table, int grid, float gamma, float lam, int before, int steps, int m, int d,
         float *values) {
  int violations = 0;
  for (int t = 0; t < steps; t++) {
    const float *row = x + (long)order[t] * d;
    float label = y[order[t]], square = x_sqnorm[order[t]], score = 0;
    for (int j = 0; j < m; j++) values[j] = sqnorm[j] + square - 2 * dot(points + (long)j * d, row, d);
    for (int j = 0; j < m; j++) values[j] = expf(-gamma * (values[j] > 0 ? values[j] : 0));
    for (int j = 0; j < m; j++) score += coef[j] * values[j];
    if (label * score >= lam * (before + t)) continue;
    violations++;
    merge(points, sqnorm, coef, row, square, label, partners + (long)t * PARTNERS, table, grid, gamma, m, d);
  }
  return violations;
}
