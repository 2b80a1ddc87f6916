import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// The number of the header's functions and their meaning: it is raised where a program made for the former one would fail.
let abiVersion: Int32 = 1

/// `salvor_abi_version` of include/salvor.h.
@_cdecl("salvor_abi_version")
public func salvorABIVersion() -> Int32 { abiVersion }

/// `salvor_version` of include/salvor.h.
@_cdecl("salvor_version")
public func salvorVersionJSON(_ result: Result_) -> Int32 {
  answer(result) {
    var libraries: [String: String] = [:]
    for module in try ModuleRegistry(ClientModules.all).descriptors {
      libraries.merge(module.libraries) { first, _ in first }
    }
    return [
      "salvor": .string(salvorVersion), "abi": .integer(Int64(abiVersion)),
      "libraries": .object(libraries.sorted { $0.key < $1.key }.map { JSONValue.Member($0.key, .string($0.value)) }),
    ]
  }
}
