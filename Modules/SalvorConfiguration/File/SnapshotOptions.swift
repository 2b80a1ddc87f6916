import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// `server.snapshots`: which groups are offered as files.
@dynamicMemberLookup
public struct SnapshotOptions: Sendable {
  /// The path resolved against the configuration's folder.
  public var rules: SnapshotRules
  /// How the files are encoded, once each.
  public var compression: PreparedModule<any Compression>

  /// Each of the rules by its own name.
  public subscript<T>(dynamicMember path: KeyPath<SnapshotRules, T>) -> T { rules[keyPath: path] }

  /// The best coding for files that are made once and sent often, first.
  static let codings = ["zstd", "gzip", "identity"]

  /// Nil: there is no such section, or something is wrong in it, which is reported.
  static func decode(
    _ section: inout OptionReader, directory: String, registry: ModuleRegistry, context: ModuleContext
  ) -> SnapshotOptions? {
    guard var reader = section.object("snapshots") else { return nil }
    var rules = SnapshotRules()
    rules.path = reader.optionalString("path").map { ConfigurationFile.resolve($0, in: directory) }
    rules.minRows = reader.integer("minRows", in: 0...Int64(1) << 40, default: rules.minRows)
    rules.keep = Int(reader.integer("keep", in: 1...10_000, default: Int64(rules.keep)))
    rules.bytesMax = reader.integer("bytesMax", in: 1...Int64(1) << 50, default: rules.bytesMax)
    rules.maxAgeMilliseconds = TimeSpan.decode(&reader, "maxAge", default: rules.maxAgeMilliseconds)
    rules.maxBehindPercent = reader.integer("maxBehind", in: 0...100, default: rules.maxBehindPercent)
    rules.personal = reader.boolean("personal", default: rules.personal)
    rules.linkMilliseconds = TimeSpan.decode(&reader, "linkExpires", default: rules.linkMilliseconds)
    rules.url = url(&reader)
    rules.bytesPerSecond = reader.integer("bytesPerSecond", in: 0...Int64(1) << 40, default: rules.bytesPerSecond)
    rules.bytesPerSecondTotal = reader.integer(
      "bytesPerSecondTotal", in: 0...Int64(1) << 40, default: rules.bytesPerSecondTotal)
    let known = registry.names(of: .compression)
    let fallback = codings.first { known.contains($0) } ?? "gzip"
    let written = reader.value("compression") ?? ConfigurationValue(.string(fallback), line: reader.line)
    let compression = registry.prepare(
      .compression, named: written, path: reader.join("compression"), &reader, context, as: (any Compression).self)
    section.finish(child: reader)
    guard let compression else { return nil }
    return SnapshotOptions(rules: rules, compression: compression)
  }

  /// Where a cache or an object store has the files, without a `/` at its end.
  private static func url(_ reader: inout OptionReader) -> String? {
    guard let text = reader.optionalString("url") else { return nil }
    do throws(SalvorError) {
      let url = try HTTPServerURL(text)
      if !url.isSecure, !url.isLoopback {
        reader.warn("url", "begins with http://: devices take nothing from it but with client.transport.insecure")
      }
      guard text.utf8.count <= 2048 else { throw SalvorError(.configuration, "must not be longer than 2048 bytes") }
    } catch {
      reader.report("url", error.message)
      return nil
    }
    return String(text.reversed().drop { $0 == "/" }.reversed())
  }

  /// The names of `codings` that this host has.
  static func known(_ registry: ModuleRegistry) -> [String] {
    codings.filter(registry.names(of: .compression).contains)
  }

  /// Every coding that this host can decode, the best first.
  static func compressions(
    _ section: inout OptionReader, _ registry: ModuleRegistry, _ context: ModuleContext
  ) -> [PreparedModule<any Compression>] {
    let line = section.line
    return known(registry).compactMap { name in
      registry.prepare(
        .compression, named: ConfigurationValue(.string(name), line: line), path: section.join("snapshots"), &section,
        context, as: (any Compression).self)
    }
  }
}
