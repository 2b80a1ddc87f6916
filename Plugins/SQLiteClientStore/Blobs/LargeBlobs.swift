import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Rows of the server's with a blob of more than this device takes: they are left out, as rows that left the scope are, and come when the
/// device takes more.
struct LargeBlobs {
  let context: StoreContext

  private func left() throws -> LeftOutBlobs? {
    try context.connection.text(.largeBlobs).map { try LeftOutBlobs(JSONValue(parsing: Array($0.utf8))) }
  }

  private func keep(_ left: LeftOutBlobs?) throws {
    try context.connection.setState(.largeBlobs, left?.json.text)
  }

  /// What of a download's payload is taken.
  ///
  /// - Parameters:
  ///   - bytesMax: nil: as it was said of the same payload before.
  ///   - notes: what is left out is noted.
  func taken(of payload: [UInt8], bytesMax: Int64? = nil, notes: Bool = true) throws -> [UInt8] {
    guard let most = try bytesMax ?? left()?.bytesMax else { return payload }
    let (taken, blobs) = try leavingOutBlobs(
      above: most, inDownload: payload, primaryKey: { context.schema.table($0)?.primaryKey },
      isHere: { try BlobStaging(context: context).isHere($0.reference, $0.place) })
    guard !blobs.isEmpty, notes, bytesMax != nil else { return taken }
    var left = try left() ?? LeftOutBlobs(bytesMax: most)
    left.note(blobs, bytesMax: most)
    try keep(left)
    return taken
  }

  /// Another download is staged.
  func forgetNotices() throws { _ = try takeNotices() }

  /// What a person should know of the download that is applied.
  func takeNotices() throws -> [String] {
    guard var left = try left(), !left.notices.isEmpty else { return [] }
    let notices = left.notices
    left.notices = []
    try keep(left)
    return notices
  }

  /// Where the device takes more now, the tables that lack rows are compared with the server.
  func lookAgain(bytesMax: Int64) throws {
    guard let left = try left(), bytesMax > left.bytesMax else { return }
    try UnprovenTables(context).takeServers(left.tables.sorted().compactMap { context.catalog.table($0) })
    try keep(nil)
  }
}
