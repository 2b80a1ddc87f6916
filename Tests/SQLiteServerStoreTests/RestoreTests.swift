import Foundation
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// Putting a copy in the place of the server's database.
@Suite struct RestoreTests {
  private let schema = RecoveryQueryTests.schema

  private func names(beside path: String) throws -> Set<String> {
    let directory = URL(fileURLWithPath: path).deletingLastPathComponent().path
    return Set(try FileManager.default.contentsOfDirectory(atPath: directory))
  }

  /// A desk with `a` in the copy and `b` written after it; closed.
  private func desk() async throws -> (ServerDesk, copy: String) {
    let desk = try await ServerDesk(schema)
    try await writeSite(desk, "a")
    let copy = desk.path + ".copy %?#1"
    try await desk.store.backup(to: copy)
    try await writeSite(desk, "b")
    return (desk, copy)
  }

  @Test(
    "whom an administrator keeps out stays out when an older copy is put back, and whom he has let in again is let in (semantics 5)"
  )
  func blocksAreTakenAlong() async throws {
    let desk = try await ServerDesk(schema)
    let (early, late, free) = (
      RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom())
    )
    for remote in [early, free] { try await desk.store.register(remote, principal: "anna") }
    #expect(try await desk.store.deleteRemote(free, block: true))
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    try await desk.store.register(late, principal: "bert")
    for remote in [early, late] { #expect(try await desk.store.deleteRemote(remote, block: true)) }
    #expect(try await desk.store.deleteRemote(free, block: false))
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    for (remote, principal) in [(early, "anna"), (late, "bert")] {
      await #expect {
        try await desk.store.register(remote, principal: principal)
      } throws: { ($0 as? SalvorError)?.code == .remoteBlocked }
    }
    try await desk.store.register(free, principal: "anna")
  }

  @Test(
    "whom an administrator keeps out stays out when a copy is put back by hand, also one that lacks no commit (semantics 5)"
  )
  func blocksOutliveACopyByHand() async throws {
    let desk = try await ServerDesk(schema)
    let (early, late, free) = (
      RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom())
    )
    for remote in [early, free] { try await desk.store.register(remote, principal: "anna") }
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    try await desk.store.register(late, principal: "bert")
    for remote in [early, late, free] { #expect(try await desk.store.deleteRemote(remote, block: true)) }
    #expect(try await desk.store.deleteRemote(free, block: false))
    let mode = try FileManager.default.attributesOfItem(atPath: desk.path + ".salvor-blocked")
    #expect(mode[.posixPermissions] as? Int == 0o600)
    await desk.store.close()
    for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: desk.path + suffix) }
    try FileManager.default.copyItem(atPath: copy, toPath: desk.path)
    for _ in 1...2 {
      try await desk.restart()
      for (remote, principal) in [(early, "anna"), (late, "bert")] {
        await #expect {
          try await desk.store.register(remote, principal: principal)
        } throws: { ($0 as? SalvorError)?.code == .remoteBlocked }
      }
      try await desk.store.register(free, principal: "anna")
    }
    // Let in again, he stays in.
    #expect(try await desk.store.deleteRemote(early, block: false))
    try await desk.restart()
    try await desk.store.register(early, principal: "anna")
  }

  @Test("where the database's path is a symbolic link, the file that it names is put back, and the link stays")
  func symbolicLink() async throws {
    let (desk, copy) = try await desk()
    await desk.store.close()
    let folder = desk.path + ".disk"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
    let file = folder + "/real.db"
    for suffix in ["", "-wal", "-shm"] where FileManager.default.fileExists(atPath: desk.path + suffix) {
      try FileManager.default.moveItem(atPath: desk.path + suffix, toPath: file + suffix)
    }
    try FileManager.default.createSymbolicLink(atPath: desk.path, withDestinationPath: file)
    try await desk.restart()
    await desk.store.close()
    let done = try await desk.store.restore(from: copy)
    #expect(try FileManager.default.destinationOfSymbolicLink(atPath: desk.path) == file)
    let before = try #require(done.before)
    #expect(before.hasPrefix(file + ".before-restore-"))
    #expect(try sites(before) == ["a", "b"])
    try await desk.restart()
    #expect(desk.opening.isRestored)
    #expect(try sites(file) == ["a"])
    try await writeSite(desk, "c")
    #expect(try sites(file) == ["a", "c"])
    await desk.store.close()
  }

  @Test("a database file that is moved or replaced under a running server takes nothing until it is back")
  func movedUnderTheServer() async throws {
    let (desk, copy) = try await desk()
    let device = try await desk.device()
    let aside = desk.path + ".aside"
    try FileManager.default.moveItem(atPath: desk.path, toPath: aside)
    func isRefused() async -> Bool {
      for call in [
        { try await desk.store.register(RemoteID(from: SystemRandom()), principal: "anna") },
        { _ = try await desk.store.sweep() }, { try await desk.store.answers() },
        { _ = try await device.download() },
      ] as [() async throws -> Void] {
        do {
          try await call()
          return false
        } catch {
          guard (error as? SalvorError)?.code == .overloaded else { return false }
        }
      }
      return true
    }
    // Gone, then another file in its place.
    #expect(await isRefused())
    try FileManager.default.copyItem(atPath: copy, toPath: desk.path)
    #expect(await isRefused())
    #expect(desk.log.all.count { $0.contains("was moved, removed or replaced") } == 1)
    // It is back, with all that was there.
    try FileManager.default.removeItem(atPath: desk.path)
    try FileManager.default.moveItem(atPath: aside, toPath: desk.path)
    try await writeSite(desk, "c")
    #expect(try sites(desk.path) == ["a", "b", "c"])
    // Another one is the database when the server starts again.
    try FileManager.default.moveItem(atPath: desk.path, toPath: aside)
    await desk.store.close()
    try FileManager.default.copyItem(atPath: copy, toPath: desk.path)
    try await desk.restart()
    #expect(desk.opening.isRestored)
    #expect(try sites(desk.path) == ["a"])
    #expect(try sites(aside) == ["a", "b", "c"])
    await desk.store.close()
  }

  @Test("a copy that is put into the file under a running server is found by whoever comes next, as at a start")
  func putInPlace() async throws {
    let asks: [(String, (ServerDesk) async throws -> Void)] = [
      ("register", { try await $0.store.register(RemoteID(from: SystemRandom()), principal: "anna") }),
      ("sweep", { _ = try await $0.store.sweep() }),
      (
        "begin",
        {
          _ = try await $0.store.admit(
            AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: []))
        }
      ),
      ("events", { _ = try await $0.store.changedGroups(since: []) }),
    ]
    for (name, ask) in asks {
      let (desk, copy) = try await desk()
      try SQLiteConnection(copy, mode: .readOnly).backup(into: try desk.other())
      for _ in 0..<2 {
        do { try await ask(desk) } catch {
          #expect((error as? SalvorError)?.code == .storageBusy, "\(name): \(error)")
        }
      }
      _ = try await desk.store.sweep()
      let opening = try #require(desk.store.opening)
      #expect(opening.isRestored && opening.incarnation != desk.opening.incarnation, "\(name)")
      let restores = try await desk.store.restores(limit: 10)
      #expect(restores.map(\.lostLast) == [2] && restores.map(\.parting.number) == [1], "\(name): \(restores)")
      try await writeSite(desk, "c")
      #expect(try sites(desk.path) == ["a", "c"])
      #expect(desk.log.all.count { $0.contains("while the server had it open") } == 1, "\(name)")
      await desk.store.close()
    }
  }

  @Test("another server's database that is put into the file is refused until the server is started again")
  func anothersInPlace() async throws {
    let (desk, own) = try await desk()
    let (other, copy) = try await self.desk()
    await other.store.close()
    try SQLiteConnection(copy, mode: .readOnly).backup(into: try desk.other())
    for _ in 0..<3 {
      await #expect(throws: SalvorError.self) { _ = try await desk.store.sweep() }
    }
    // Nothing was written into it, and the server's own is found to be restored when it is back.
    #expect(
      try SQLiteConnection(copy, mode: .readOnly).rows("SELECT id FROM salvor_incarnation")
        == desk.other().rows("SELECT id FROM salvor_incarnation"))
    try SQLiteConnection(own, mode: .readOnly).backup(into: try desk.other())
    _ = try await desk.store.sweep()
    #expect(desk.store.opening?.isRestored == true)
    try SQLiteConnection(copy, mode: .readOnly).backup(into: try desk.other())
    try await desk.restart()
    #expect(desk.opening.serverID == other.opening.serverID)
    #expect(try sites(desk.path) == ["a"])
    await desk.store.close()
  }

  @Test("every copy has a line, which a restore does not take back; a forgotten one is no floor")
  func recorded() async throws {
    let (desk, copy) = try await desk()
    let first = try await desk.store.sweep().number - 1
    let second = desk.path + ".second"
    try await desk.store.backup(to: second)
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    let known = try await desk.store.recordedBackups()
    #expect(
      known.map { URL(fileURLWithPath: $0.path).lastPathComponent } == [
        "consolidated.db.second", "consolidated.db.copy %?#1",
      ])
    #expect(known.map(\.commit.number) == [first + 1, first])
    #expect(Set(known.map(\.digest.count)) == [64])
    #expect(RecordedBackup.floor(of: known) == first)
    let oldest = try #require(known.last)
    #expect(try await desk.store.forgetBackup(oldest.id))
    #expect(try await !desk.store.forgetBackup(oldest.id))
    #expect(try await !desk.store.forgetBackup("nothing"))
    #expect(RecordedBackup.floor(of: try await desk.store.recordedBackups()) == first + 1)
    await desk.store.close()
    #expect(try await !desk.store.restore(from: second).isForgotten)
    #expect(try await desk.store.recordedBackups().map(\.isForgotten) == [false, true])
    await desk.store.close()
    // The first copy was made before the database had a list of copies.
    #expect(try await desk.store.restore(from: copy).isForgotten, "devices may have let go of what they kept for it")
    let listed = try await desk.store.recordedBackups()
    #expect(listed.map(\.commit.number) == [first + 1, first])
    #expect(listed.map(\.isForgotten) == [false, true])
    await desk.store.close()
  }

  @Test("a restore is written down once, by the command or by the start that finds it, and says who is missing")
  func restores() async throws {
    let desk = try await ServerDesk(schema)
    #expect(try await desk.store.restores(limit: 10) == [])
    let remotes = (0..<2).map { _ in RemoteID(from: SystemRandom()) }
    for remote in remotes { try await desk.store.register(remote, principal: "anna") }
    try await writeSite(desk, "a")
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    try await writeSite(desk, "b")
    let lost = try await desk.store.sweep()
    let incarnation = desk.opening.incarnation
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    for _ in 1...2 {
      let found = try await desk.store.restores(limit: 10)
      #expect(found.map(\.parting.number) == [lost.number - 1])
      #expect(found.map(\.lostLast) == [lost.number])
      #expect(found.map(\.lostIncarnation) == [incarnation])
      #expect(found.map(\.isExact) == [true])
      #expect(found.map(\.commitsOfPrograms) == [1])
      #expect(found.map(\.commitsNotOffered) == [[lost.number...lost.number]])
      // The database before says that nobody but a program wrote.
      #expect(found.map { Set($0.absent.map(\.remote)) } == [Set(remotes)])
      #expect(found.map { $0.absent.contains { $0.isMissed } } == [false])
      try await desk.restart()
    }
    _ = try await desk.store.admit(AdmissionQuery(remote: remotes[0], previous: nil, current: nil, cursors: []))
    let later = RemoteID(from: SystemRandom())
    try await desk.store.register(later, principal: "bert")
    let found = try #require(try await desk.store.restores(limit: 10).first)
    #expect(found.absent.map(\.remote) == [remotes[1]])
    #expect(found.seen == [remotes[0]])
    await desk.store.close()
  }

  @Test("a second restore to the same copy keeps the first one's record")
  func restoresOneAfterTheOther() async throws {
    let desk = try await ServerDesk(schema)
    let (anna, bert) = (try await desk.device(), try await desk.device())
    try await writeSite(desk, "a")
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    let parting = try await desk.store.sweep().number
    func restored() async throws {
      await desk.store.close()
      _ = try await desk.store.restore(from: copy)
      try await desk.restart()
    }
    // Neither device hears of the other's incarnation.
    let first = LostVersion(incarnation: desk.opening.incarnation, number: parting + 1, parting: parting)
    try await writeSite(desk, "b")
    try await restored()
    let lost = HandChange.insert("site", [("id", "b"), ("owner", "anna"), ("name", "x")])
    _ = try await desk.uploaded(anna, [lost], version: first)
    let second = LostVersion(incarnation: desk.opening.incarnation, number: parting + 2, parting: parting)
    try await writeSite(desk, "c")
    try await restored()
    let records = try await desk.store.restores(limit: 10)
    #expect(records.map(\.lostIncarnation) == [second.incarnation, first.incarnation])
    #expect(records.map(\.lostLast) == [parting + 2, parting + 1])
    #expect(records.last?.counts.map(\.healed) == [1])
    #expect(records.last?.commitsNotOffered == [])
    // The newer version wins, though the older one comes last and no device tells the order. Who made it had
    // not seen the older one: that is kept.
    let newer = HandChange.insert("site", [("id", "b"), ("owner", "anna"), ("name", "newer")])
    #expect(try await desk.uploaded(bert, [newer], version: second).healed == 1)
    let older = HandChange.insert("site", [("id", "b"), ("owner", "anna"), ("name", "older")])
    let results = try await desk.uploaded(anna, [older], version: first)
    #expect(results.superseded == 0 && results.conflicts == 1)
    #expect(try desk.other().rows("SELECT name FROM site WHERE id = 'b'") == [["newer"]])
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    #expect(try await desk.store.restores(limit: 10).map(\.id) == [3, 2, 1])
  }

  @Test("an offer above everything that its history can have had is refused, where that is known for certain")
  func neverMade() async throws {
    for isCertain in [true, false] {
      let (desk, copy) = try await desk()
      try await writeSite(desk, "c")
      let last = try await desk.store.sweep().number
      let incarnation = desk.opening.incarnation
      await desk.store.close()
      // Without the file beside it nobody knows that nothing was made after the database's last commit.
      if !isCertain { try FileManager.default.removeItem(atPath: desk.path + ".salvor-side") }
      _ = try await desk.store.restore(from: copy)
      #expect(try await desk.store.restores(limit: 1).map(\.isExact) == [true])
      try await desk.restart()
      let anna = try await desk.device()
      func offer(_ number: Int64) async throws -> UploadResults {
        let row = HandChange.insert("site", [("id", .text("x\(number)")), ("owner", "anna"), ("name", "x")])
        return try await desk.uploaded(
          anna, [row], version: LostVersion(incarnation: incarnation, number: number, parting: last - 2))
      }
      #expect(try await offer(last).healed == 1)
      // What changed nothing has the number of the commit that would have come next.
      #expect(try await offer(last + 1).healed == 1)
      let results = try await offer(last + 2)
      #expect(results.refused.map(\.reason) == (isCertain ? [.rejected] : []))
      #expect(try desk.other().integer("SELECT count(*) FROM site WHERE id LIKE 'x%'") == (isCertain ? 2 : 3))
      await desk.store.close()
    }
  }

  @Test("a purge that a restore took is done again, and is not listed as missing")
  func lostPurge() async throws {
    let (desk, copy) = try await desk()
    _ = try await desk.store.purge([["a"]], of: "site")
    try await writeSite(desk, "c")
    let last = try await desk.store.sweep().number
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    #expect(try desk.other().integer("SELECT count(*) FROM site") == 0)
    let found = try #require(try await desk.store.restores(limit: 1).first)
    #expect(found.lostLast == last)
    #expect(found.commitsNotOffered == [last - 2...last - 2, last...last])
    await desk.store.close()
  }

  /// Seed 9151024 of `in-place`: the second copy has every commit, and the next purge wrote the file anew without the act.
  @Test("a purge stands where the same copy is put into the open file twice, which takes no commit the second time")
  func lostPurgeInPlace() async throws {
    let (desk, copy) = try await desk()
    try await writeSite(desk, "c")
    _ = try await desk.store.purge([["c"]], of: "site")
    for _ in 0..<2 {
      try SQLiteConnection(copy, mode: .readOnly).backup(into: try desk.other())
      for _ in 0..<2 { _ = try? await desk.store.sweep() }
      #expect(try desk.other().integer("SELECT count(*) FROM salvor_purge") == 1)
    }
    try SQLiteConnection(copy, mode: .readOnly).backup(into: try desk.other())
    // He is told to try again until the server has reopened it.
    _ = try? await desk.store.purge([["x"]], of: "site")
    for _ in 0..<2 { _ = try? await desk.store.sweep() }
    _ = try await desk.store.purge([["x"]], of: "site")
    #expect(try desk.other().integer("SELECT count(*) FROM salvor_purge") == 2)
    try await desk.restart()
    #expect(try desk.other().integer("SELECT count(*) FROM salvor_purge") == 2)
    await desk.store.close()
  }

  @Test("a copy that was put back by other means is a restore, too; who wrote is not known then")
  func restoredByHand() async throws {
    let (desk, copy) = try await desk()
    let remote = RemoteID(from: SystemRandom())
    try await desk.store.register(remote, principal: "anna")
    let lost = try await desk.store.sweep()
    await desk.store.close()
    for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: desk.path + suffix) }
    try FileManager.default.copyItem(atPath: copy, toPath: desk.path)
    for _ in 1...2 {
      try await desk.restart()
      let found = try await desk.store.restores(limit: 10)
      #expect(found.map(\.lostLast) == [lost.number])
      #expect(found.map(\.isExact) == [false])
      #expect(found.map(\.commitsOfPrograms) == [nil])
    }
    await desk.store.close()
  }

  @Test("the copy stands in the database's place, the database beside it, and the next start says so")
  func restore() async throws {
    let (desk, copy) = try await desk()
    let head = try await desk.store.sweep()
    await desk.store.close()
    try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: desk.path)
    let done = try await desk.store.restore(from: copy)
    #expect(done.server == desk.opening.serverID)
    #expect(done.remembered == head.number)
    #expect(done.head.number == head.number - 1)
    #expect(done.database == desk.path)
    #expect(try sites(desk.path) == ["a"])
    let before = try #require(done.before)
    #expect(before.hasPrefix(desk.path + ".before-restore-"))
    #expect(try sites(before) == ["a", "b"])
    let rights = try FileManager.default.attributesOfItem(atPath: desk.path)[.posixPermissions] as? Int
    #expect(rights == 0o640)
    let left = try names(beside: desk.path)
    #expect(!left.contains { $0.hasSuffix(".restoring") || $0.hasSuffix(".partial") || $0.hasSuffix("#1-wal") })
    try await desk.restart()
    #expect(desk.opening.isRestored)
    #expect(desk.opening.serverID == done.server)
    #expect(desk.log.all.contains { $0.contains("came from a backup") })
    await desk.store.close()
    let again = try await desk.store.restore(from: copy)
    #expect(again.before != before)
  }

  @Test("a database that somebody has open is left alone, whether in a transaction or idle")
  func inUse() async throws {
    let (desk, copy) = try await desk()
    let error = await #expect(throws: SalvorError.self) { try await desk.store.restore(from: copy) }
    #expect(error?.code == .storageBusy)
    await desk.store.close()
    let other = try desk.other()
    #expect(try other.integer("SELECT count(*) FROM site") == 2)
    await #expect(throws: SalvorError.self) { try await desk.store.restore(from: copy) }
    #expect(try sites(desk.path) == ["a", "b"])
    #expect(try !names(beside: desk.path).contains { $0.contains("before-restore") })
    other.close()
    _ = try await desk.store.restore(from: copy)
    #expect(try sites(desk.path) == ["a"])
  }

  @Test("a damaged database gives way and is kept with its log; a missing one leaves no log behind")
  func damaged() async throws {
    let (desk, copy) = try await desk()
    await desk.store.close()
    let damage = Data(repeating: 0x58, count: 5000)
    try damage.write(to: URL(fileURLWithPath: desk.path))
    try damage.write(to: URL(fileURLWithPath: desk.path + "-wal"))
    let before = try #require(try await desk.store.restore(from: copy).before)
    #expect(try sites(desk.path) == ["a"])
    #expect(try Data(contentsOf: URL(fileURLWithPath: before)) == damage)
    #expect(try Data(contentsOf: URL(fileURLWithPath: before + "-wal")) == damage)
    try FileManager.default.removeItem(atPath: desk.path)
    try damage.write(to: URL(fileURLWithPath: desk.path + "-wal"))
    #expect(try await desk.store.restore(from: copy).before == nil)
    #expect(try sites(desk.path) == ["a"])
  }

  @Test("what is not a whole copy of a server's database is refused, and nothing changes")
  func refused() async throws {
    let (desk, copy) = try await desk()
    await desk.store.close()
    let whole = try Data(contentsOf: URL(fileURLWithPath: copy))
    func file(_ name: String, _ content: Data) throws -> String {
      try content.write(to: URL(fileURLWithPath: desk.path + name))
      return desk.path + name
    }
    let other = desk.path + ".other"
    try SQLiteConnection(other).execute("CREATE TABLE t (a)")
    var torn = whole
    torn.replaceSubrange(4096..<whole.count, with: Data(repeating: 0xFF, count: whole.count - 4096))
    let bad = [
      desk.path + ".missing", desk.path, other, try file(".empty", Data()), try file(".text", Data("no".utf8)),
      try file(".torn", torn), try file(".short", whole.prefix(whole.count / 2)),
    ]
    let before = try names(beside: desk.path)
    for source in bad {
      let error = await #expect(throws: SalvorError.self, "\(source)") { try await desk.store.restore(from: source) }
      #expect(error?.code == .usage, "\(source): \(error?.message ?? "")")
      #expect(error?.message.contains(source) == true)
    }
    #expect(try names(beside: desk.path) == before)
    #expect(try sites(desk.path) == ["a", "b"])
  }
}
