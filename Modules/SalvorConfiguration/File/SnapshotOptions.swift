import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// `server.snapshots`: which groups are offered as files.
public struct SnapshotOptions: Sendable {
  /// Resolved against the configuration's folder; nil: beside the database.
  public var path: String?
  public var minRows: Int64
  public var keep: Int
  public var bytesMax: Int64
  public var maxAgeMilliseconds: Int64
  /// A share of the rows.
  public var maxBehind: Double
  public var personal: Bool
  public var linkMilliseconds: Int64
  public var compression: PreparedModule<any Compression>

  /// The best coding for files that are made once and sent often, first.
  static let codings = ["zstd", "gzip", "identity"]

  /// Nil: there is no such section, or something is wrong in it, which is reported.
  static func decode(
    _ section: inout OptionReader, directory: String, registry: ModuleRegistry, context: ModuleContext
  ) -> SnapshotOptions? {
    guard var reader = section.object("snapshots") else { return nil }
    let path = reader.optionalString("path").map { ConfigurationFile.resolve($0, in: directory) }
    let minRows = reader.integer("minRows", in: 0...Int64(1) << 40, default: 20_000)
    let keep = reader.integer("keep", in: 1...10_000, default: 16)
    let bytesMax = reader.integer("bytesMax", in: 1...Int64(1) << 50, default: 8 << 30)
    let maxAge = TimeSpan.decode(&reader, "maxAge", default: 7 * 86_400_000)
    let percent = reader.integer("maxBehind", in: 0...100, default: 10)
    let personal = reader.boolean("personal", default: false)
    let link = TimeSpan.decode(&reader, "linkExpires", default: 2 * 86_400_000)
    let known = registry.names(of: .compression)
    let fallback = codings.first { known.contains($0) } ?? "gzip"
    let written = reader.value("compression") ?? ConfigurationValue(.string(fallback), line: reader.line)
    let compression = registry.prepare(
      .compression, named: written, path: reader.join("compression"), &reader, context, as: (any Compression).self)
    section.finish(child: reader)
    guard let compression else { return nil }
    return SnapshotOptions(
      path: path, minRows: minRows, keep: Int(keep), bytesMax: bytesMax, maxAgeMilliseconds: maxAge,
      maxBehind: Double(percent) / 100, personal: personal, linkMilliseconds: link, compression: compression)
  }

  /// Every coding that this host can decode, the best first.
  static func compressions(
    _ section: inout OptionReader, _ registry: ModuleRegistry, _ context: ModuleContext
  ) -> [PreparedModule<any Compression>] {
    let known = registry.names(of: .compression)
    let line = section.line
    return codings.filter(known.contains).compactMap { name in
      registry.prepare(
        .compression, named: ConfigurationValue(.string(name), line: line), path: section.join("snapshots"), &section,
        context, as: (any Compression).self)
    }
  }
}
