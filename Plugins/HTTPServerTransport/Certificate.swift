#if HTTPServer
  import SalvorModel
  import SalvorTransport

  #if canImport(CCrypto) && canImport(Glibc)
    import CCrypto
    import Glibc
  #endif

  extension HTTPServerTransport: CertifiedTransport {
    /// In milliseconds since 1970. Nil: the server has no TLS, or the certificate's end cannot be told on this
    /// system. Errors: `configuration` where the files of `tls` cannot be used.
    public func certificateEnd() throws -> Int64? {
      guard let tls = options.tls else { return nil }
      let files = try TLSFiles(tls)
      return Certificate.end(of: files.certificate)
    }
  }

  enum Certificate {
    /// When the first of the certificates ends, in milliseconds since 1970; nil: the text holds none, or it cannot be said on
    /// this system.
    static func end(of text: UnsafePointer<CChar>) -> Int64? {
      #if canImport(CCrypto) && canImport(Glibc)
        guard let input = BIO_new_mem_buf(text, -1) else { return nil }
        defer { BIO_free(input) }
        var first: Int64?
        while let certificate = PEM_read_bio_X509(input, nil, nil, nil) {
          defer { X509_free(certificate) }
          var time = tm()
          guard ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) == 1 else { continue }
          let end = Int64(timegm(&time)) * 1000
          first = min(first ?? end, end)
        }
        // The end of the text is an error of the library's.
        ERR_clear_error()
        return first
      #else
        return nil
      #endif
    }
  }
#endif
