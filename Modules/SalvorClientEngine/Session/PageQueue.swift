import SalvorStorage

/// Pages of a download on their way to the store: they are staged one after the other while more of them is read.
struct PageQueue {
  private let store: any ClientStore
  /// In their order. Some of the first may be staged already.
  private var pages: [(task: Task<Void, any Error>, bytes: Int)] = []

  /// Of `pages`, together.
  private var bytes = 0

  /// How far reading may be ahead.
  private static let bytesMax = 1 << 20
  /// The same in pages: small ones cost more than their bytes.
  private static let pagesMax = 16

  init(_ store: any ClientStore) { self.store = store }

  /// Returns when no more than `bytesMax` and `pagesMax` are ahead. Throws what staging a page threw; those behind it are not staged.
  mutating func add(_ page: StagedChunk) async throws {
    let before = pages.last?.task
    let task = Task { [store] in
      try await before?.value
      try await store.stage(page)
    }
    pages.append((task, page.bytes.count))
    bytes += page.bytes.count
    while bytes > Self.bytesMax || pages.count > Self.pagesMax, let first = pages.first {
      bytes -= first.bytes
      pages.removeFirst()
      try await first.task.value
    }
  }

  /// Returns when every page is staged.
  mutating func finish() async throws {
    let last = pages.last?.task
    (pages, bytes) = ([], 0)
    try await last?.value
  }

  /// Returns when nothing is on its way any more, whatever became of it.
  mutating func end() async {
    _ = await pages.last?.task.result
    (pages, bytes) = ([], 0)
  }
}
