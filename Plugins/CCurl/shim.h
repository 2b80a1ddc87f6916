#include <curl/curl.h>

// curl_easy_setopt and curl_easy_getinfo are variadic, which the importer cannot see: one function for each type. Nor does
// it see constants that are names of other constants.
static inline CURLcode ccurl_global_init(void) { return curl_global_init(CURL_GLOBAL_ALL); }

static inline const char *ccurl_version(void) { return curl_version_info(CURLVERSION_NOW)->version; }

static inline CURLcode ccurl_set_long(CURL *handle, CURLoption option, long value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode ccurl_set_size(CURL *handle, CURLoption option, curl_off_t value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode ccurl_set_string(CURL *handle, CURLoption option, const char *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode ccurl_set_pointer(CURL *handle, CURLoption option, const void *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode ccurl_set_headers(CURL *handle, struct curl_slist *value) {
  return curl_easy_setopt(handle, CURLOPT_HTTPHEADER, value);
}

typedef size_t (*ccurl_data_callback)(char *data, size_t size, size_t count, void *closure);

static inline void ccurl_set_callbacks(
    CURL *handle, ccurl_data_callback header, ccurl_data_callback write, ccurl_data_callback read, void *closure) {
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, closure);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, write);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, closure);
  curl_easy_setopt(handle, CURLOPT_READFUNCTION, read);
  curl_easy_setopt(handle, CURLOPT_READDATA, closure);
  curl_easy_setopt(handle, CURLOPT_PRIVATE, closure);
}
static inline CURLcode ccurl_get_private(CURL *handle, void **value) {
  return curl_easy_getinfo(handle, CURLINFO_PRIVATE, value);
}
static inline long ccurl_response_code(CURL *handle) {
  long code = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
  return code;
}
static inline CURLcode ccurl_message_result(CURLMsg *message) { return message->data.result; }
static inline CURLMcode ccurl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
  return curl_multi_setopt(multi, option, value);
}

// TLS 1.2 or newer.
static const long ccurl_tls_min = CURL_SSLVERSION_TLSv1_2;
