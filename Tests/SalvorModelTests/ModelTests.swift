import Foundation
import SalvorFoundation
import SalvorModel
import Testing

@Suite("Values, identifiers and tables")
struct ModelTests {
  @Test("every error is a LocalizedError: the message, why, and a way on", arguments: ErrorCode.allCases)
  func localizedErrors(code: ErrorCode) {
    let error: any Error = SalvorError(code, "The table site is gone.")
    #expect(error.localizedDescription == "The table site is gone.")
    let localized = error as? any LocalizedError
    #expect(localized?.failureReason?.hasSuffix(".") == true)
    #expect(localized?.recoverySuggestion?.hasSuffix(".") == true)
  }

  @Test("equality is storage class and bytes, not Unicode's and not numeric (semantics 3, changed)")
  func equality() {
    #expect(Value.text("\u{E9}") != Value.text("e\u{301}"))
    #expect(Value.integer(1) != Value.real(1))
    #expect(Value.real(0.0) != Value.real(-0.0))
    #expect(Value.text([0xFF]) == Value.text([0xFF]))
    #expect(Value.text([0xFF]).string == nil)
    #expect(Set([Value.blob([1]), Value.text([1])]).count == 2)
  }

  @Test("an identifier is 32 lower-case hexadecimal digits; a request ID is a stamp and a counter above 0")
  func identifiers() throws {
    let text = String(repeating: "0a", count: 16)
    #expect(RemoteID(text)?.text == text)
    #expect(RemoteID(text.uppercased()) == nil)
    #expect(RemoteID(String(text.dropLast())) == nil)
    #expect(RequestID("\(text)-7")?.counter == 7)
    #expect(RequestID("\(text)-0") == nil)
    #expect(RequestID(text) == nil)
    #expect(RemoteID(from: SystemRandom()) != RemoteID(from: SystemRandom()))
  }

  @Test("a column stores what comes back with its storage class (interfaces, column types)")
  func storable() {
    #expect(ColumnType.boolean.stores(1) && !ColumnType.boolean.stores(2))
    #expect(ColumnType.real.stores(1.5) && !ColumnType.real.stores(1))
    #expect(!ColumnType.text.stores(.blob([])) && ColumnType.json.stores("{}"))
    #expect(ColumnType.allCases.allSatisfy { $0.stores(.null) })
  }

  @Test("an integer key refuses what a text key merges (semantics 7, same key)")
  func sameKey() {
    let text = Table("t", primaryKey: ["id"], columns: [Column("id", .text)])
    let integer = Table("t", primaryKey: ["id"], columns: [Column("id", .integer)])
    #expect(text.sameKey == .merge && integer.sameKey == .refuse)
  }

  @Test("exit codes and numbers of the catalogue are those of the interfaces page")
  func catalogue() {
    #expect(ErrorCode.uploadFailedAtServer.number == -10400)
    #expect(ErrorCode.configuration.exitCode == 2 && ErrorCode.unreachable.exitCode == 3)
    #expect(ErrorCode.unauthenticated.exitCode == 4 && ErrorCode.recoveryRequired.exitCode == 5)
    #expect(Set(ErrorCode.allCases.map(\.number)).count == ErrorCode.allCases.count)
  }
}
