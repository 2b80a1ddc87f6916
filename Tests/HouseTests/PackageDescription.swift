import Foundation

/// What `swift package describe --type json` says, as far as it is used here.
struct PackageDescription: Decodable, Sendable {
  struct Target: Decodable, Sendable {
    var name: String
    var type: String
    var path: String
    var target_dependencies: [String]?
  }
  var targets: [Target]

  var kinds: [String: HouseRules.Kind] {
    var kinds: [String: HouseRules.Kind] = [:]
    for target in targets {
      kinds[target.name] =
        switch (target.type, target.path.split(separator: "/").first) {
        case ("system-target", _), ("system-library", _): .library
        case (_, "Modules"): .module
        case (_, "Plugins"): .plugin
        case (_, "Products"): .product
        case (_, "Tools"), (_, "Examples"): .tool
        default: .tests
        }
    }
    return kinds
  }

  var edges: [HouseRules.Edge] {
    targets.flatMap { target in
      (target.target_dependencies ?? []).map { .init(from: target.name, to: $0, place: "Package.swift") }
    }
  }

  /// Every target that is built before `target`: what it depends on, and what that depends on.
  func dependencies(of target: String) -> Set<String> {
    let direct = Dictionary(uniqueKeysWithValues: targets.map { ($0.name, $0.target_dependencies ?? []) })
    var found: Set<String> = []
    var open = direct[target] ?? []
    while let next = open.popLast() {
      if found.insert(next).inserted { open += direct[next] ?? [] }
    }
    return found
  }

  /// Runs `swift package describe` once, with every trait, and a scratch path of its own, so that it never waits for the lock of the
  /// `swift test` that this runs in.
  static func read(_ tree: SourceTree) throws -> PackageDescription { try described.get() }

  private static let described = Result { try describe(SourceTree()) }

  private static func describe(_ tree: SourceTree) throws -> PackageDescription {
    let scratch = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-house-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: scratch) }
    let command =
      "swift package --package-path '\(tree.root.path)' --scratch-path '\(scratch.path)' --traits default,PostgreSQL"
      + " describe --type json 2>&1"
    guard let output = popen(command, "r") else { throw HouseError("no process can be started") }
    var data = Data()
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while case let count = fread(&buffer, 1, buffer.count, output), count > 0 { data += buffer[..<count] }
    guard pclose(output) == 0, let start = data.firstIndex(of: UInt8(ascii: "{")) else {
      throw HouseError("swift package describe failed: \(String(decoding: data, as: UTF8.self))")
    }
    data = data[start...]
    return try JSONDecoder().decode(PackageDescription.self, from: data)
  }
}

struct HouseError: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}
