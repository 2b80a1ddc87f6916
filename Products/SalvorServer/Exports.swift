@_exported import SalvorConfiguration
@_exported import SalvorModel
@_exported import SalvorModuleKit
@_exported import SalvorServerEngine
@_exported import SalvorServerHost
@_exported import SalvorStorage
@_exported import SalvorTransport
@_exported import ServerModules
