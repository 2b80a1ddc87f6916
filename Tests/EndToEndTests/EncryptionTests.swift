import Foundation
import Testing

/// A device's database that is encrypted: by an SQLite that can do it (`Tools/encrypting-sqlite` builds them), which is loaded
/// in the place of the one that `salvor` was linked with.
@Suite struct EncryptionTests {
  /// The libraries that were built; their tests do not run without them.
  static let libraries: [String] = ["libsqlcipher.so", "libsqlite3mc.so"].map {
    Built.root.appendingPathComponent(".build/encryption/\($0)").path
  }.filter { FileManager.default.fileExists(atPath: $0) }

  /// A device whose database is encrypted with `FIELD_KEY`.
  private func device(_ place: Workspace, _ url: String, recovery: String = "{}") throws -> Device {
    let device = try place.device("anna", url: url, recovery: recovery)
    let file = device.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: #"path: "field.db""#, with: ##"path: "field.db", key: "${FIELD_KEY}""##)
      .write(to: file, atomically: true, encoding: .utf8)
    return device
  }

  private func environment(_ library: String, key: String = "it's a key") -> [String: String] {
    ["LD_PRELOAD": library, "FIELD_KEY": key]
  }

  /// The application's own program: Python's sqlite3 with the same library.
  private func sqlite(_ device: Device, _ library: String, _ statements: String) async throws -> Output {
    try await ChildProcess(
      "python3", ["-c", Self.program, statements], directory: device.directory,
      environment: ["LD_PRELOAD": library]
    ).output()
  }

  private static let program = """
    import sqlite3, sys
    with sqlite3.connect("field.db") as connection:
        connection.execute("PRAGMA key = 'it''s a key'")
        print(connection.execute(sys.argv[1]).fetchall())
    """

  /// What stands in clear in any file of a folder.
  private func filesWith(_ word: String, in folder: URL) throws -> [String] {
    let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)?.allObjects ?? []
    return files.compactMap { $0 as? URL }.filter { file in
      ((try? Data(contentsOf: file))?.range(of: Data(word.utf8))) != nil
    }.map(\.lastPathComponent)
  }

  @Test("A key is refused where SQLite cannot encrypt, never passed over; nothing is made, and nobody sees it")
  func refusedWhereItCannot() async throws {
    let place = try Workspace()
    let device = try device(place, "http://127.0.0.1:9")
    let output = try await device.salvor("sync", "--json", environment: ["FIELD_KEY": "sesame"])
    #expect(output.code == 1)
    #expect(output.out.contains("key-refused"), "\(output.out)")
    #expect(!(output.out + output.err).contains("sesame"))
    #expect(!FileManager.default.fileExists(atPath: device.database))
  }

  @Test("salvor check says that the SQLite that is linked cannot use a key, and not what the key is")
  func checkNamesAKeyThatCannotBeUsed() async throws {
    let place = try Workspace()
    let device = try device(place, "http://127.0.0.1:9")
    let output = try await device.salvor("check", "--json", environment: ["FIELD_KEY": "sesame"])
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect((output.out + output.err).contains("cannot encrypt"), "\(output.out) \(output.err)")
    #expect(!(output.out + output.err).contains("sesame"))
    for library in Self.libraries {
      let able = try await device.salvor("check", "--json", environment: environment(library))
      #expect(able.code == 0 && !(able.out + able.err).contains("cannot encrypt"), "\(able.out) \(able.err)")
    }
  }

  @Test("An empty key is a mistake of the configuration")
  func emptyKey() async throws {
    let place = try Workspace()
    let device = try device(place, "http://127.0.0.1:9")
    let output = try await device.salvor("check", environment: ["FIELD_KEY": ""])
    #expect(output.code == 2)
    #expect((output.out + output.err).contains("client.storage.key"), "\(output.out) \(output.err)")
  }

  @Test(
    "Rows go both ways; no file beside the database has a value in clear, copies of recoveries neither",
    arguments: libraries)
  func everythingIsEncrypted(library: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'plainly readable', 1)")
    let device = try device(place, url, recovery: #"{ strategy: "recreate", heal: "off" }"#)
    let environment = environment(library)
    try await device.sync(environment: environment)
    #expect(try await sqlite(device, library, "SELECT name FROM site").out.contains("plainly readable"))
    let written = try await sqlite(device, library, "INSERT INTO site VALUES ('s2', 'plainly written', 2)")
    #expect(written.code == 0, "\(written.err)")
    #expect(try filesWith("plainly", in: device.directory) == [])
    try await device.sync(environment: environment)
    #expect(try place.server.sqlite().scalar("SELECT name FROM site WHERE id = 's2'") == "plainly written")

    // A recovery that makes the tables anew, and its copy put back.
    let recovered = try await device.salvor("recover", "--strategy", "recreate", "--json", environment: environment)
    #expect(recovered.code == 0, "\(recovered.out) \(recovered.err)")
    #expect(try filesWith("plainly", in: device.directory) == [])
    let backups = try await device.salvor("backups", "--json", environment: environment).json
    let id = try #require(backups["backups"].items.first?["id"].string, "\(backups)")
    let restored = try await device.salvor("backups", "restore", id, environment: environment)
    #expect(restored.code == 0, "\(restored.out) \(restored.err)")
    #expect(try await sqlite(device, library, "SELECT count(*) FROM site").out.contains("2"))
    #expect(try await sqlite(device, library, "PRAGMA integrity_check").out.contains("ok"))
    #expect(try filesWith("plainly", in: device.directory) == [])
  }

  @Test(
    "A wrong key and a missing one are named, and change nothing: neither is taken for a damaged file",
    arguments: libraries)
  func wrongKey(library: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try device(place, url, recovery: ##"{ reasons: { "local-corruption": "recreate" } }"##)
    try await device.sync(environment: environment(library))
    let before = try Data(contentsOf: URL(fileURLWithPath: device.database))
    let wrong = try await device.salvor("sync", "--json", environment: environment(library, key: "another"))
    #expect(wrong.code == 1)
    #expect(wrong.out.contains("key-refused"), "\(wrong.out)")
    try device.connect(to: url)
    let missing = try await device.salvor("sync", "--json", environment: environment(library))
    #expect(missing.code == 1)
    #expect(missing.out.contains("key-refused"), "\(missing.out)")
    #expect(try Data(contentsOf: URL(fileURLWithPath: device.database)) == before)
    #expect(!FileManager.default.fileExists(atPath: device.database + ".salvor-backups"))
  }

  @Test("rekey encrypts the file anew; the old key opens it no more", arguments: libraries)
  func rekey(library: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'plainly readable', 1)")
    let device = try device(place, url)
    try await device.sync(environment: environment(library))
    let unnamed = try await device.salvor("rekey", "--new-key", "NEW_KEY", environment: environment(library))
    #expect(unnamed.code == 2, "\(unnamed.err)")
    let changed = try await device.salvor(
      "rekey", "--new-key", "NEW_KEY", environment: environment(library).merging(["NEW_KEY": "new"]) { $1 })
    #expect(changed.code == 0, "\(changed.out) \(changed.err)")
    #expect(try await device.salvor("status", environment: environment(library)).code == 1)
    try await device.sync(environment: environment(library, key: "new"))
    #expect(try filesWith("plainly", in: device.directory) == [])
  }
}
