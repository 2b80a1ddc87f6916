import SQLiteClientStore
import SalvorModules

/// A storage: SQLite, in a file for each user of a folder. One that is no SQLite implements `ClientStore`.
enum UserFolders {
  static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .clientStorage, name: "user-folder", summary: "A database for each user, in one folder.",
      options: [
        ModuleOption("path", type: "string", default: nil, "the folder"),
        ModuleOption("user", type: "string", default: "\"anna\"", "whose database it is: letters and digits"),
      ]),
    product: (any ClientStore).self
  ) { reader, context in
    let folder = reader.path("path")
    let user = reader.string("user", default: "anna")
    if user.isEmpty || !user.allSatisfy({ $0.isLetter || $0.isNumber }) {
      reader.report("user", "has more than letters and digits in it")
      return nil
    }
    guard let folder else { return nil }
    let path = context.resolve(folder) + "-\(user).db"
    return { SQLiteClientStore(path: path, random: context.random, clock: context.clock, limits: context.limits) }
  }
}
