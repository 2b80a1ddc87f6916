/// What is to come of the history under one policy (docs/internals/edit-history.md).
struct EditHistoryCounts: Sendable {
  let policy: String
  /// Nil: it changed nothing on its device.
  let transactions: [ExpectedServer.Fate?: Int]
  /// Changes of all kinds in the devices' archives, and among the server's conflict versions.
  let archivedChanges: Int
  let listedChanges: Int
  let clashes: [Reckoning.ClashFate: Int]
  let resolutions: [Reckoning.Resolution: Int]
  let flaggedAtResolutions: Int
  let partings: [Reckoning.Parting: Int]
  /// Of the whole history: tables whose rows end exactly as the source's.
  var tablesAsTheSource: [String] = []

  static func of(_ policy: String, isWhole: Bool) -> EditHistoryCounts? {
    (isWhole ? whole : first).first { $0.policy == policy }
  }

  /// Up to landing 66: 142 changes that clash.
  private static let first = [
    EditHistoryCounts(
      policy: "client-wins", transactions: [.accepted: 46, nil: 2], archivedChanges: 0, listedChanges: 0,
      clashes: [.stands: 101, .merged: 41],
      resolutions: [.unopposed: 1], flaggedAtResolutions: 0, partings: [.notMade: 1]),
    EditHistoryCounts(
      policy: "server-wins",
      transactions: [.accepted: 41, .refused("conflict"): 1, .refused("blocked"): 4, nil: 2], archivedChanges: 2623,
      listedChanges: 0, clashes: [.merged: 2, .archived: 140],
      resolutions: [.unopposed: 1], flaggedAtResolutions: 0, partings: [.archived: 1067]),
    EditHistoryCounts(
      policy: "keep-versions",
      transactions: [.accepted: 41, .kept: 2, .refused("row-deleted"): 1, .refused("blocked"): 2, nil: 2],
      archivedChanges: 1323, listedChanges: 1300, clashes: [.merged: 2, .listed: 107, .archived: 33],
      resolutions: [.unopposed: 1],
      flaggedAtResolutions: 0,
      partings: [.listed: 484, .archived: 583]),
  ]

  /// The whole history: 1,391 changes that clash.
  private static let whole = [
    EditHistoryCounts(
      policy: "client-wins",
      transactions: [.accepted: 1360, .refused("row-deleted"): 4, .refused("blocked"): 2, nil: 50],
      archivedChanges: 1840, listedChanges: 0, clashes: [.stands: 145, .merged: 178, .archived: 1064, .notMade: 4],
      resolutions: [.flagged: 8, .companion: 2, .unopposed: 70, .untouched: 65], flaggedAtResolutions: 77,
      partings: [.archived: 158, .notMade: 129],
      tablesAsTheSource: ["leadership_role", "committee", "committee_member"]),
    EditHistoryCounts(
      policy: "server-wins",
      transactions: [
        .accepted: 1303, .refused("conflict"): 13, .refused("row-deleted"): 3, .refused("blocked"): 12, nil: 85,
      ],
      archivedChanges: 11408, listedChanges: 0, clashes: [.merged: 63, .archived: 1303, .notMade: 25],
      resolutions: [.flagged: 2, .companion: 55, .unopposed: 23, .untouched: 65], flaggedAtResolutions: 10,
      partings: [.archived: 1246, .notMade: 126], tablesAsTheSource: ["leadership_role"]),
    EditHistoryCounts(
      policy: "keep-versions",
      transactions: [.accepted: 1323, .kept: 17, .refused("row-deleted"): 5, .refused("blocked"): 4, nil: 67],
      archivedChanges: 3156, listedChanges: 6371, clashes: [.listed: 219, .archived: 1090, .merged: 68, .notMade: 14],
      resolutions: [.flagged: 7, .companion: 50, .unopposed: 23, .untouched: 65], flaggedAtResolutions: 65,
      partings: [.listed: 796, .archived: 390, .notMade: 128], tablesAsTheSource: ["leadership_role"]),
  ]
}
