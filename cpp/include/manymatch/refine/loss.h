// Loss functions of a weighted least-squares problem, of the squared residual.
#pragma once

namespace manymatch {

// r^2, min(r^2, eps^2), eps^2 log(1 + r^2 / eps^2).
enum class Loss : int { kSquared = 0, kTruncated = 1, kCauchy = 2 };

}  // namespace manymatch
