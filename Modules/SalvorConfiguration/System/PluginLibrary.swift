import SalvorModel
import SalvorModuleKit

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Loads a library that a configuration names under `plugins`: its own code runs in this process from then on.
enum PluginLibrary {
  /// The modules of the library, with its path as their origin. Each refusal says what is wrong with which file; a library that
  /// is refused for what it was built with has run nothing but its handshake.
  static func load(_ path: String) throws(SalvorError) -> [ModuleFactory] {
    func refuse(_ why: String) -> SalvorError {
      SalvorError(.configuration, "names the library \(path), \(why)", context: ["file": path])
    }
    var found = stat()
    guard stat(path, &found) == 0 else {
      throw refuse("which cannot be read: \(String(cString: strerror(errno)))")
    }
    guard found.st_mode & S_IFMT == S_IFREG else { throw refuse("which is no file") }
    guard found.st_mode & 0o002 == 0 else {
      throw refuse("which everybody may write: whoever does, runs code here. Take that right away (chmod o-w)")
    }
    guard PluginABI.isLent({ dlsym(dlopen(nil, RTLD_NOW), $0) }) else {
      throw refuse(
        "which stands on Salvor's own code, and this program does not lend that: libsalvor never does (for other languages), "
          + "a program of Swift does where it is linked with -Xlinker --export-dynamic. Otherwise take it out of plugins: "
          + "a strategy can be a program (\"program\"), and salvor sync --watch, which loads it, can run beside")
    }
    // A path with a slash: nothing is looked for elsewhere.
    guard let handle = dlopen(path.hasPrefix("/") ? path : "./" + path, RTLD_NOW | RTLD_LOCAL) else {
      let reason = dlerror().map { String(cString: $0) } ?? "no reason is given"
      throw refuse(
        reason.contains("undefined symbol: $s")
          ? "which was built for another version of Salvor: rebuild it with this release (\(PluginABI.fingerprint)). \(reason)"
          : "which cannot be loaded: \(reason)")
    }
    guard let abi = dlsym(handle, PluginABI.abiFunction), let modules = dlsym(handle, PluginABI.modulesFunction) else {
      dlclose(handle)
      throw refuse(
        "which is no plug-in of Salvor: it has no function \(PluginABI.abiFunction) and \(PluginABI.modulesFunction)")
    }
    let text = unsafeBitCast(abi, to: (@convention(c) () -> UnsafeMutablePointer<CChar>).self)()
    let fingerprint = String(cString: text)
    text.deallocate()
    guard fingerprint == PluginABI.fingerprint else {
      dlclose(handle)
      throw refuse(
        "which was built with another release: it has \(fingerprint.prefix(200)), this program \(PluginABI.fingerprint). Rebuild it"
      )
    }
    let give = unsafeBitCast(modules, to: (@convention(c) () -> UnsafeMutableRawPointer).self)
    return PluginABI.take(give()).map { factory in
      var factory = factory
      factory.descriptor.origin = path
      return factory
    }
  }
}
