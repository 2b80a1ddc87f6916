import SQLiteSupport
import SalvorModel
import SnapshotFiles

/// A snapshot's database, attached to the store's connection under a name of its own. Nobody writes in it.
struct AttachedSnapshot {
  let alias: String
  /// Parents first.
  let tables: [Table]

  /// Outside a transaction. Throws `inconsistent-download` where SQLite does not take the file.
  static func attach(_ snapshots: [OpenedSnapshot], to connection: SQLiteConnection) throws -> [AttachedSnapshot] {
    var attached: [AttachedSnapshot] = []
    for (place, snapshot) in snapshots.enumerated() {
      let alias = "salvor_file_\(place)"
      do {
        try connection.run("ATTACH ?1 AS \(alias)", .text(snapshot.address))
      } catch {
        detach(attached, from: connection)
        throw SalvorError(
          .inconsistentDownload, "A snapshot could not be opened: \((error as? SalvorError)?.sqliteDetail ?? "").")
      }
      attached.append(AttachedSnapshot(alias: alias, tables: snapshot.tables))
    }
    return attached
  }

  static func detach(_ attached: [AttachedSnapshot], from connection: SQLiteConnection) {
    if attached.isEmpty { return }
    connection.clearStatementCache()
    for file in attached { try? connection.run("DETACH \(file.alias)") }
  }
}
