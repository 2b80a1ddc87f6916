/// What reading a download's lines has to know of a recovery.
protocol RecoveryRules: AnyObject {
  /// What becomes of the bases; nil: the tables are made anew, and nothing is watched.
  var watch: BaseWatch? { get }
  /// The newest commit that both sides have; nil: any that the device knows.
  var sharedMax: Int64? { get }
  /// A row that waiting requests need stays until they are sent.
  var keepsRequests: Bool { get }
}
