import SalvorModel

/// What a library under `plugins` and the program that loads it must have in common before anything of one is given to the other:
/// the release, the compiler, and how the types are laid out that pass between them.
///
/// A library has two functions that C can find, and nothing else is asked of it:
///
/// ```swift
/// @_cdecl("salvor_plugin_abi") public func abi() -> UnsafeMutablePointer<CChar> { PluginABI.handshake() }
/// @_cdecl("salvor_plugin_modules") public func modules() -> UnsafeMutableRawPointer { PluginABI.modules([Mine.factory]) }
/// ```
public enum PluginABI {
  /// The functions' names.
  public static let abiFunction = "salvor_plugin_abi"
  /// Called only where `abiFunction` has given the program's own fingerprint.
  public static let modulesFunction = "salvor_plugin_modules"

  /// Whether a library that is loaded finds this very Salvor: the program that it is linked into lends its symbols (on Linux
  /// `-Xlinker --export-dynamic`). `find` looks up a function among those that the whole process sees.
  package static func isLent(_ find: (String) -> UnsafeMutableRawPointer?) -> Bool {
    guard let found = find("_salvor_lent") else { return false }
    // The process may hold another Salvor beside this one.
    return unsafeBitCast(found, to: (@convention(c) () -> UnsafeMutableRawPointer).self)() == Lent.mark
  }

  /// Compiled into whoever asks: a library says what it was built with, not what it runs in.
  @_alwaysEmitIntoClient public static var fingerprint: String {
    #if compiler(>=6.5)
      let compiler = "6.5 or later"
    #elseif compiler(>=6.4)
      let compiler = "6.4"
    #elseif compiler(>=6.3)
      let compiler = "6.3"
    #elseif compiler(>=6.2)
      let compiler = "6.2"
    #else
      let compiler = "6.1"
    #endif
    let sizes = [
      MemoryLayout<ModuleFactory>.size, MemoryLayout<ModuleDescriptor>.size, MemoryLayout<ModuleContext>.size,
      MemoryLayout<OptionReader>.size, MemoryLayout<Limits>.size, MemoryLayout<SalvorError>.size,
      MemoryLayout<Schema>.size, MemoryLayout<Table>.size, MemoryLayout<Column>.size, MemoryLayout<Value>.size,
      MemoryLayout<Log>.size, MemoryLayout<LogRecord>.size, ErrorCode.allCases.count,
    ]
    return "Salvor 0.1.0, Swift \(compiler), layout \(sizes.map { "\($0)" }.joined(separator: "."))"
  }

  /// The fingerprint for the loader, which gives its memory back.
  @_alwaysEmitIntoClient public static func handshake() -> UnsafeMutablePointer<CChar> {
    let text = fingerprint.utf8CString
    let copy = UnsafeMutablePointer<CChar>.allocate(capacity: text.count)
    copy.initialize(from: Array(text), count: text.count)
    return copy
  }

  /// The modules of a library for the loader, which takes them over.
  public static func modules(_ list: [ModuleFactory]) -> UnsafeMutableRawPointer {
    Unmanaged.passRetained(PluginModules(list)).toOpaque()
  }

  /// What `modules` gave. Once for each.
  public static func take(_ pointer: UnsafeMutableRawPointer) -> [ModuleFactory] {
    Unmanaged<PluginModules>.fromOpaque(pointer).takeRetainedValue().list
  }
}

private final class PluginModules {
  let list: [ModuleFactory]

  init(_ list: [ModuleFactory]) { self.list = list }
}

/// Known by its address.
private final class Lent: Sendable {
  private static let own = Lent()
  static var mark: UnsafeMutableRawPointer { Unmanaged.passUnretained(own).toOpaque() }
}

/// What `PluginABI.isLent` looks for.
@_cdecl("_salvor_lent") public func salvorLent() -> UnsafeMutableRawPointer { Lent.mark }
