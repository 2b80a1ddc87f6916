import SalvorModel

extension ByteStream {
  /// The same bytes, for a body whose length was announced: an end before `length`, or a byte after it, is an error
  /// before it is seen.
  package func exactly(_ length: Int) -> ByteStream {
    let count = Count()
    return ByteStream(
      next: {
        let piece = try await next()
        let total = count.add(piece?.count ?? 0)
        guard total <= length, piece != nil || total == length else {
          throw SalvorError(.failed, "A body's length is not the one that was announced.")
        }
        return piece
      }, close: close)
  }

  private final class Count: Sendable {
    private let value = Mutex(0)
    func add(_ more: Int) -> Int {
      value.withLock {
        $0 += more
        return $0
      }
    }
  }
}
