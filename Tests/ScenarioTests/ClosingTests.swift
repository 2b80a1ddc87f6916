#if os(Linux)
  import Glibc
  import SalvorClientEngine
  import SalvorModel
  import Testing

  @Suite("What is closed is gone")
  struct ClosingTests {
    /// The files below `folder` that this process has open; of one that was removed, too.
    private func openFiles(_ folder: String) -> [String] {
      guard let directory = opendir("/proc/self/fd") else { return [] }
      defer { closedir(directory) }
      var found: [String] = []
      while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        var target = [CChar](repeating: 0, count: 4096)
        let count = readlink("/proc/self/fd/\(name)", &target, target.count)
        guard count > 0 else { continue }
        let path = String(decoding: target.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if path.hasPrefix(folder) { found.append(path) }
      }
      return found.sorted()
    }

    @Test(
      "a client and a server that are opened and closed 200 times in one process keep no file open, and no client stays"
    )
    func openedAgain() async throws {
      let fleet = try Fleet()
      try await fleet.start()
      let a = try fleet.device("a")
      var early: [String] = []
      for round in 0...200 {
        weak let client = try await a.open()
        #expect(client != nil)
        if round % 8 == 0 {
          try await a.write("INSERT INTO site VALUES ('s\(round)', 'made', NULL, \(round))")
          #expect(try await a.sync().error == nil)
        }
        if round % 4 == 0 { try await fleet.restart() }
        await a.close()
        #expect(client == nil, "round \(round)")
        if round == 8 { early = openFiles(fleet.directory) }
      }
      #expect(openFiles(fleet.directory) == early)
      try fleet.expectEqual(["severity", "site", "visit"], [a])
    }
  }
#endif
