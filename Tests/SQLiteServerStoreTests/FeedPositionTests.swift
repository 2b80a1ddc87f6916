import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// A position comes back from a device: anything may stand in it.
@Suite("Positions of downloads") struct FeedPositionTests {
  private static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text)])
  ])

  /// A download that is under way, and its position: of a first one in the scan, of another one in the log.
  private func cut(isFirst: Bool) async throws -> (ServerDesk, Handset, String) {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    if !isFirst { try await device.download() }
    try desk.other().execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO note SELECT 'n' || i, 'a' FROM n"
    )
    _ = try await desk.store.sweep()
    let page = try await ask(desk, device, nil)
    return (desk, device, try #require(page.position))
  }

  private func ask(_ desk: ServerDesk, _ device: Handset, _ position: String?) async throws -> FeedPage {
    try await desk.store.page(
      PageRequest(
        remote: device.remote, principal: device.principal, groups: device.groups, position: position, bytesTarget: 1000
      ))
  }

  @Test("One that no server gave is refused, whatever it is: the download begins again", arguments: [true, false])
  func rubbish(isFirst: Bool) async throws {
    let (desk, device, position) = try await cut(isFirst: isFirst)
    for text in ["", "rubbish", "{}", "[]", "7", "\"x\"", String(position.dropLast()), position + position] {
      let error = await #expect(throws: SalvorError.self) { try await ask(desk, device, text) }
      #expect(error?.code == .inconsistentDownload, "\(text)")
    }
  }

  @Test("Whatever numbers stand in it, it is answered or refused, and the server goes on", arguments: [true, false])
  func numbers(isFirst: Bool) async throws {
    let (desk, device, position) = try await cut(isFirst: isFirst)
    for place in position.matches(of: /[\[,:](-?[0-9]+)(?=[,\]}])/) {
      for number in ["-1", "\(Int64.min)", "\(Int64.max)", "9223372036854775808", "null", "0.5", "\"7\""] {
        var text = position
        text.replaceSubrange(place.output.1.startIndex..<place.output.1.endIndex, with: number)
        do { _ = try await ask(desk, device, text) } catch let error as SalvorError {
          #expect([.inconsistentDownload, .tooLarge].contains(error.code), "\(error) of \(text)")
        }
      }
    }
    // The real one goes on.
    _ = try await ask(desk, device, position)
  }
}
