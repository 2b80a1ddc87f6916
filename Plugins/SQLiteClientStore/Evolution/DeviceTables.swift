import SQLiteSupport

extension TableDDL {
  /// How a device's tables are made: every reference is a foreign key there, except the soft ones.
  static let device = TableDDL(softForeignKeys: false)
}
