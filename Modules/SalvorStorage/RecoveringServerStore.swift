import SalvorModel
import SalvorWire

/// What the consolidated database does for devices that recover, and for the operator (semantics 9).
public protocol RecoveringServerStore: ServerStore {
  /// The number below which tombstones are no longer kept.
  func trimmed() async throws -> Int64

  /// The scope digests of groups, as a download's end names them.
  func scopes(of groups: [String], for scope: ReadScope) async throws -> [String: String]

  /// How many rows of these groups are in the scope.
  func rowCount(of groups: [String], for scope: ReadScope) async throws -> Int64

  /// Answers a query with a download payload: each row of the scope whose digest is another than the one
  /// given, `lost` for each named key without such a row (`dropped` where the principal may see it, and the subscriptions
  /// do not cover it), and the rows of the query's range that were not named.
  func rows(matching query: RowQuery, for scope: ReadScope) async throws -> [UInt8]

  /// Digests of up to `limit` ranges of the rows of the scope, as the question says.
  func ranges(_ question: RangeQuestion, limit: Int, for scope: ReadScope) async throws -> RangePage

  /// Count and digest of all rows of a table of the scope. Asked with each begin that has the table compared:
  /// a store may remember it as long as it knows that nothing was written.
  func digest(of table: String, for scope: ReadScope) async throws -> TableDigest

  /// The operator demands a reset: the remote's next begin is answered with `operator-requested` until it has recovered.
  /// Each demand gets a number that was not given before (`RemoteRecord.resetDemand`) and takes the place of the one before
  /// it. One that was deleted hears of it when it comes back. False: there is no such remote, or it is blocked.
  func demandReset(_ remote: RemoteID) async throws -> Bool

  /// Demands a reset of every registered remote, or of those of one principal, under one number that was not given before.
  ///
  /// - Parameter principal: nil: everybody's.
  /// - Returns: how many.
  func demandResets(of principal: String?) async throws -> Int64

  /// The remote has met this demand. Another one stays. False: there is no such remote.
  func settleReset(_ remote: RemoteID, demand: Int64) async throws -> Bool

  /// A consistent copy of the whole database while it is in use, checked before this returns. An existing file is refused.
  /// Works without `open`.
  func backup(to path: String) async throws
}
