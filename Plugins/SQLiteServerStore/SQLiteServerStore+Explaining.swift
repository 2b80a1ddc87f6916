import SalvorModel
import SalvorStorage

extension SQLiteServerStore: ExplainingServerStore {
  /// Numbers first what other programs have committed.
  public func facts(of table: String, _ key: Key, in scopes: [ReadScope]) async throws -> ServerRowFacts {
    // What other programs have committed has its number then.
    _ = try await sweep()
    if let answer = try await reading({ try await $0.facts(of: table, key, in: scopes) }) { return answer }
    return try await writer.facts(of: table, key, in: scopes)
  }
}
