@_exported import SalvorClientHost
@_exported import SalvorConfiguration
@_exported import SalvorServerHost
