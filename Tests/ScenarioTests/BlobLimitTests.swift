import SQLiteSupport
import SalvorClient
import SalvorModel
import Testing

/// What is too long for an address.
extension BlobTests {
  @Test("the image of a row with a key of 40,000 bytes comes down, and goes up", arguments: ["k", "字", "&=%"])
  func longKey(unit: String) async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    let (key, other) = (String(repeating: unit, count: 40_000 / unit.utf8.count), String(repeating: unit, count: 700))
    try await insert(a, key, image(1, 40_000))
    try await insert(a, other, image(2, 50_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try b.rows("photo").count == 2)
  }

  @Test("an answer that explains nothing names what was asked, and where to look")
  func unexplained() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    fleet.faults.inject(.answer(status: 502))
    let error = try await a.sync().error
    #expect(error?.message.hasPrefix("POST /v1/sync was answered with status 502 and no explanation") == true)
    #expect(error?.message.contains("a proxy on the way") == true)
    try await insert(a, "p1", image(1, 40_000))
    fleet.faults.pass(1)
    fleet.faults.inject(.answer(status: 414))
    #expect(try await a.sync().error?.message.hasPrefix("PUT /v1/blobs/… was answered with status 414") == true)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["photo"], [a])
  }
}
