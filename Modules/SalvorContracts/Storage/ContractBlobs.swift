import SalvorModel
import SalvorStorage
import SalvorWire

/// Blobs of the storage suites: large enough to travel outside the payload, with their hashes written down, so that no
/// suite needs SHA-256.
enum ContractBlobs {
  struct Blob: Sendable {
    var bytes: [UInt8]
    var reference: BlobReference
    var value: Value { .blob(bytes) }

    init(_ count: Int, _ a: Int, _ b: Int, _ hash: StaticString) {
      bytes = (0..<count).map { UInt8(truncatingIfNeeded: ($0 * a + b) ^ ($0 >> 8)) }
      let text = hash.withUTF8Buffer { String(decoding: $0, as: UTF8.self) }
      reference = BlobReference(hash: BlobHash(text) ?? unknown, size: Int64(count))
    }
  }

  static let first = Blob(40_000, 31, 7, "65d2df2307f5f098d69eb263d1bc905f0a355923f232cb280f0640b20be5643a")
  static let second = Blob(50_000, 17, 3, "c52e45bc3606b1449363c7cd16f2aa5d621818be2d3bf4a773cd7f7654b1ac48")
  static let third = Blob(33_000, 13, 11, "f01f3278af4e489f5e533ae19d3ad62d4124ebd5f6a46cb5f3975215c136647c")
  /// Travels in the payload.
  static let small = Blob(300, 5, 1, "0ab54c1e342adce3d37ae1b028ab70c4288438ca38fd3af8e07ee859e96b754c")

  /// Of no blob.
  static let unknown = BlobHash(digest: [UInt8](repeating: 0, count: 32))

  /// What a bench writes refers to the blobs above by their sizes.
  static let sink = BlobSink(bytesMin: 32 << 10) { bytes in
    [first, second, third].first { $0.bytes.count == bytes.count }?.reference.hash ?? unknown
  }

  /// Photographs that belong to whom `owner` names.
  static let schema = Schema(tables: [
    Table(
      "photo", primaryKey: ["id"],
      columns: [
        Column("id", .text), Column("owner", .text), Column("title", .text, nullable: true),
        Column("image", .blob, nullable: true),
      ], scope: [ScopeColumn(column: "owner", source: .principal)])
  ])

  static func place(_ id: String) -> BlobPlace { BlobPlace(table: "photo", key: [.text(id)], column: "image") }
}
