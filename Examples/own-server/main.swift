import SalvorServer

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

let file = CommandLine.arguments.dropFirst().first ?? "salvor.json5"
let server = try await RunningServer.open(configurationFile: file)
print("listening on \(try await server.start())")
fflush(nil)
while true { try await Task.sleep(for: .seconds(3600)) }
