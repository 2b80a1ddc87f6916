import SalvorModel
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What the side file's name has more than the database's.
package let sideSuffix = ".salvor-side"

/// The file beside the database, or in a process's own folder, that remembers the last commit (semantics 6). It is written after
/// each commit, by one write to an open file, and never read but at open: a database that does not know what it says came from a
/// backup.
package final class SideFile: Sendable {
  /// A timeline of a cluster that stands behind a network.
  package struct Place: Sendable, Hashable {
    package var system: String
    package var timeline: Int64

    package init(system: String, timeline: Int64) { (self.system, self.timeline) = (system, timeline) }
  }

  package struct Content: Sendable, Hashable {
    package var server: ServerID
    package var incarnation: IncarnationID
    package var commit: Commit

    /// Which cluster, where there may be several; nil: it has not been said.
    package var place: Place?
    /// The last act of the ledger of purged rows; nil: none.
    package var purged: PurgeEnd?

    package init(server: ServerID, incarnation: IncarnationID, commit: Commit) {
      (self.server, self.incarnation, self.commit) = (server, incarnation, commit)
    }

    /// Whether a database still has the commit.
    package func isKnown(_ connection: any StoreConnection) throws -> Bool {
      let id = try connection.scalar("SELECT id FROM salvor_commit WHERE number = ?1", .integer(commit.number))?.string
      if let id { return id == commit.id.text }
      // Trimmed commits are gone, too; a later one of a backup is not.
      return commit.number <= (try FeedPageMaker.trimmed(connection))
    }
  }

  /// One record of this size, padded with spaces, so that a write never leaves a part of an older one.
  private static let size = 512
  private let descriptor: Int32
  private let path: String

  /// Nil where it cannot be opened: the database works without it.
  ///
  /// - Parameter mode: of a file that is made.
  package init?(_ path: String, mode: mode_t = 0o600) {
    self.path = path
    descriptor = FileSystem.open(path, O_RDWR | O_CREAT, mode)
    guard descriptor >= 0 else { return nil }
  }

  deinit { close(descriptor) }

  /// Nil where there is none yet, or a power cut left a damaged one.
  package func read() -> Content? {
    var bytes = [UInt8](repeating: 0x20, count: Self.size)
    let count = pread(descriptor, &bytes, Self.size, 0)
    guard count > 0, let json = try? JSONValue(parsing: Array(bytes.prefix(count))) else { return nil }
    guard let server: ServerID = try? json.identifier("server"),
      let incarnation: IncarnationID = try? json.identifier("incarnation"),
      let number = try? json.integer("commit"), let id: CommitID = try? json.identifier("id")
    else { return nil }
    var content = Content(server: server, incarnation: incarnation, commit: Commit(number: number, id: id))
    if let system = json["system"]?.string, let timeline = json["timeline"]?.integer {
      content.place = Place(system: system, timeline: timeline)
    }
    if let count = json["purges"]?.integer, let seal = json["seal"]?.string {
      content.purged = PurgeEnd(count: count, seal: seal)
    }
    return content
  }

  /// Failures are let go: what the file protects against is noticed by the sequence check too.
  package func write(_ content: Content) {
    var members: [JSONValue.Member] = [
      .init("server", .string(content.server.text)), .init("incarnation", .string(content.incarnation.text)),
      .init("commit", .integer(content.commit.number)), .init("id", .string(content.commit.id.text)),
    ]
    if let place = content.place {
      members += [.init("system", .string(place.system)), .init("timeline", .integer(place.timeline))]
    }
    if let purged = content.purged {
      members += [.init("purges", .integer(purged.count)), .init("seal", .string(purged.seal))]
    }
    var bytes = JSONValue.object(members).bytes
    bytes += [UInt8](repeating: 0x20, count: max(0, Self.size - 1 - bytes.count)) + [0x0A]
    _ = FileSystem.write(bytes, to: descriptor, of: path, at: 0)
  }
}
