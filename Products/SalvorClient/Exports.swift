@_exported import ClientModules
@_exported import SalvorClientEngine
@_exported import SalvorClientHost
@_exported import SalvorConfiguration
@_exported import SalvorModel
@_exported import SalvorModuleKit
@_exported import SalvorRecovery
@_exported import SalvorStorage
@_exported import SalvorTransport

#if canImport(Darwin)
  @_exported import SalvorFoundation
#endif
